"""What was woven when a package was last built: the base of a three-way merge.

A package that people own keeps it in `gen.base`, beside the lock. For others it is found by the hashes of the lock:
in files that nobody edited, in what is woven now, in git's history.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from generator.disk.git import older_file
from generator.disk.lock import LOCK, MAP, Lock
from generator.disk.look import kind_of, read_text, sha256, show
from generator.errors import LoomError

BASE = "gen.base"
ABOUT = "What gen wove when this package was last built or updated: gen update merges with it."


def dump_base(files: dict[str, bytes]) -> bytes:
    """The text of `gen.base` for the files of a build."""
    texts = {path: data.decode() for path, data in sorted(files.items()) if path not in (LOCK, MAP)}
    return (json.dumps({"about": ABOUT, "files": texts}, indent=1, ensure_ascii=False) + "\n").encode()


def base_texts(folder: Path, lock: Lock, weave: Callable[[], dict[str, str]]) -> dict[str, str]:
    """Gives the text of each file of a package as it was woven, except the map.

    Args:
        weave: weaves it now.
    """
    wanted = {path: digest for path, digest in lock.outputs.items() if path != MAP}
    found = {path: text for path, text in kept_base(folder).items() if sha256(text.encode()) == wanted.get(path)}
    for path, digest in wanted.items():
        if path not in found and kind_of(folder / path) == "file":
            data = (folder / path).read_bytes()
            if sha256(data) == digest:
                found[path] = data.decode()
    if found.keys() != wanted.keys():
        with suppress(LoomError):  # what cannot be woven now may be in the history
            now = weave()
            found |= {path: text for path, text in now.items() if sha256(text.encode()) == wanted.get(path)}
    for path in sorted(wanted.keys() - found.keys()):
        text = older_file(folder, path, wanted[path])
        if text is None:
            remedy = f"Take {BASE} back as gen wrote it, fetch the whole history of git, or merge by hand: "
            remedy += "gen build --out DIR makes what is woven now."
            raise LoomError(f"what was woven here is found nowhere, in {BASE} neither", show(folder / path), remedy)
        found[path] = text
    return found


def kept_base(folder: Path) -> dict[str, str]:
    """What `gen.base` holds; nothing where there is none. Hashes decide what of it is believed."""
    if kind_of(folder / BASE) != "file":
        return {}
    try:
        files = json.loads(read_text(folder / BASE))["files"]
        return {path: text for path, text in files.items() if isinstance(text, str)}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
