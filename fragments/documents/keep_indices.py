"""Indices of JSONL files are made before they are read, each by one process of the job, and kept beside the run."""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import jax

from generator.language import point, proceed, requires, splice
from generator.language.roles import (
    INDEX_FOLDERS,
    JSONL,
    Config,
    InputError,
    find_files,
    index_path,
    on_all_processes,
    open_by_format,
)

requires("documents/jsonl_index")


def index_files(sources: Iterable[str], field: str) -> None:
    """Writes this process's share of the indices that are still missing."""
    texts = [source for source in sources if not (Path(source).expanduser() / "prepared.json").exists()]
    files = [file for text in texts for file in find_files(text) if JSONL.search(file.name)]
    for file in files[jax.process_index() :: jax.process_count()]:
        if not index_path(file, field).exists():
            with contextlib.suppress(InputError):  # raised by what reads the file, perhaps as prompts
                open_by_format(file, field)


@contextlib.contextmanager
def keep_indices(config: Config) -> Iterator[None]:
    """Keeps the indices of the files that are opened meanwhile beside the run, if it has a local directory."""
    with point("keep_indices.sources", config):
        sources = [data for data in (config.data, config.eval_data) if data]
    try:
        if config.checkpoint_dir and "://" not in config.checkpoint_dir:
            INDEX_FOLDERS.append(Path(config.checkpoint_dir).expanduser() / "index")
            on_all_processes(lambda: index_files(sources, config.text_field))
        yield
    finally:
        INDEX_FOLDERS.clear()


@splice("train.data")
def _(config):
    with keep_indices(config):
        proceed()
