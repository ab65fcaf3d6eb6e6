"""Directories that are there when all is written, or not at all."""

import contextlib
from collections.abc import Iterator

from etils import epath

from generator.language import point
from generator.language.roles import InputError, absolute


@contextlib.contextmanager
def atomic_directory(directory: str) -> Iterator[epath.Path]:
    """Yields a directory to write to; renames it to `directory` when all is written, else removes it."""
    whole = absolute(directory)
    if whole.exists():
        raise InputError(f"{directory}: already exists: give a new directory")
    half = whole.with_name(f"{whole.name}.half")
    half.rmtree(missing_ok=True)  # left by a program that was killed
    try:
        yield half
        half.rename(whole)
    finally:
        with point("atomic_directory.remove", half):
            half.rmtree(missing_ok=True)
