"""A folder of prepared data that one process computes from other prepared data."""

import json
import re
from pathlib import Path
from typing import Any

from generator.language.roles import InputError

HALF = "tokens.half"  # the documents, until all of them are written


def new_folder(out: str) -> Path:
    """Makes a folder, or empties one that was left without its prepared.json. Raises InputError if it holds more."""
    folder = Path(out).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    files = [*folder.iterdir()]
    if not all(re.fullmatch(f"{HALF}|prepared[.]half|tokens-[0-9a-f]{{8}}", file.name) for file in files):
        raise InputError(f"--out {out}: already exists: give a new folder")
    for file in files:
        file.unlink()
    return folder


def finish_folder(folder: Path, name: str, count: int, description: dict[str, Any]) -> None:
    """Names the documents, and describes them: the description comes last, and whole."""
    (folder / HALF).rename(folder / name)
    half = folder / "prepared.half"
    half.write_text(json.dumps(description | {"shards": {name: count}}))
    half.rename(folder / "prepared.json")
