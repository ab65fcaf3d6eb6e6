"""Indices of JSONL files, kept beside a run: each is made once, by one process of the job."""

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import jax
import numpy as np

from generator.language import point, proceed, requires, splice
from generator.language.roles import JSONL, Config, InputError, find_files, on_all_processes, open_by_format

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


def index_files(sources: Iterable[str], field: str) -> None:
    """Makes this process's share of the indices that a run still lacks."""
    texts = [source for source in sources if not (Path(source).expanduser() / "prepared.json").exists()]
    files = [file for text in texts for file in find_files(text) if JSONL.search(file.name)]
    for file in files[jax.process_index() :: jax.process_count()]:
        if not index_path(file, field).exists():
            with contextlib.suppress(InputError):  # raised by what reads the file, perhaps as prompts
                open_by_format(file, field)


@splice("open_jsonl.lines")
def _(content, field, lines, left_out):
    kept = index_path(content.path, field) if INDEX_FOLDERS else None
    if kept and kept.exists():
        index = read_index(kept)
        lines, left_out = index[1:], int(index[0])
    else:
        proceed()
        if kept:
            with contextlib.suppress(OSError):  # the run says that its directory cannot be written
                write_index(kept, left_out, np.asarray(lines))


@contextlib.contextmanager
def keep_indices(config: Config, sources: list[str]) -> Iterator[None]:
    """Keeps the indices of the files that are opened meanwhile beside the run, if it has a local directory."""
    try:
        if config.checkpoint_dir and "://" not in config.checkpoint_dir:
            INDEX_FOLDERS.append(Path(config.checkpoint_dir).expanduser() / "index")
            on_all_processes(lambda: index_files(sources, config.text_field))
        yield
    finally:
        INDEX_FOLDERS.clear()


@splice("train.data")
def _(config):
    with point("train.index", config):
        paths = [data for data in (config.data, config.eval_data) if data]
    with keep_indices(config, paths):
        proceed()
