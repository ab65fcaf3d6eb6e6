"""Directories that are there when all is written, or not at all."""

import contextlib
from collections.abc import Iterator

from etils import epath
from safetensors import SafetensorError

from generator.language import point
from generator.language.roles import InputError, absolute, check_writable


@contextlib.contextmanager
def atomic_directory(directory: str) -> Iterator[epath.Path]:
    """Yields a new directory to write to; renames it to `directory` when all is written, else removes it."""
    whole = absolute(directory)
    half = whole.with_name(f"{whole.name}.half")
    for path in whole, half:  # the second one may be left by a program that was killed
        if path.exists():
            raise InputError(f"{path}: already exists: give a new directory, or remove this one")
    with point("atomic_directory.writable", whole):
        check_writable(whole)
    try:
        yield half
        half.rename(whole)
    except SafetensorError as error:  # its writer turns an OSError into this
        raise OSError(f"{half}: {error}") from None
    finally:
        with point("atomic_directory.remove", half):
            half.rmtree(missing_ok=True)
