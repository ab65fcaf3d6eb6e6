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
    target = absolute(directory)
    half = target.with_name(f"{target.name}.half")
    for path in target, half:  # the second one may be left by a program that was killed
        if path.exists():
            raise InputError(f"{path}: already exists: give a new directory, or remove this one")
    with point("atomic_directory.writable", target):
        check_writable(target)
    try:
        yield half
        half.rename(target)
    except SafetensorError as error:  # its writer turns an OSError into this
        raise OSError(f"{half}: {error}") from None
    finally:
        with point("atomic_directory.remove", half):
            half.rmtree(missing_ok=True)
