"""Indices of the lines of JSONL files, kept beside a run."""

import contextlib
import hashlib
import os
from pathlib import Path

import jax
import numpy as np

from generator.language import proceed, requires, splice
from generator.language.roles import InputError

requires("cluster/agreement")

INDEX_FOLDERS: list[Path] = []  # the folder of indices while a run opens its files


def index_path(path: Path, field: str) -> Path:
    """Returns where the index of a file is kept, by the file's path, size and time."""
    stat = path.stat()
    key = repr((str(path.resolve()), stat.st_size, stat.st_mtime_ns, field))
    return INDEX_FOLDERS[0] / f"{hashlib.blake2b(key.encode(), digest_size=8).hexdigest()}.npy"


def write_index(path: Path, left_out: int, lines: np.ndarray) -> None:
    """Writes the number of rows left out, and number, start and end of each line; int64 [1 + 3n]."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f"{path.stem}.half-{os.getpid()}-{jax.process_index()}.npy")
    np.save(half, np.concatenate([[left_out], lines]))
    half.rename(path)


def read_index(path: Path) -> np.ndarray:
    """Maps an index into memory. Raises InputError if it is damaged."""
    try:
        index = np.load(path, mmap_mode="r")
    except (ValueError, EOFError) as error:
        raise InputError(f"{path}: is damaged: {error}: remove it") from None
    if index.ndim != 1 or index.dtype != np.int64 or index.size % 3 != 1:
        raise InputError(f"{path}: is no index of lines: remove it")
    return index


@splice("open_jsonl.lines")
def _(content, field, lines, left_out):
    kept = index_path(content.path, field) if INDEX_FOLDERS else None
    if kept and kept.exists():
        index = read_index(kept)
        lines = index[1:]
        left_out = int(index[0])
    else:
        proceed()
        if kept:
            with contextlib.suppress(OSError):  # the run says that its directory cannot be written
                write_index(kept, left_out, np.asarray(lines))
