"""Whether a directory can be written to, before hours of work for it."""

import tempfile
from pathlib import Path

from generator.language.roles import InputError


def check_writable(directory: Path) -> None:
    """Raises InputError unless files can be made in a directory, or in the nearest one above it that exists."""
    try:
        nearest = next(x for x in (directory, *directory.parents) if x.exists())
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError as error:
        raise InputError(f"{directory}: cannot be written: {error.strerror}: give another path") from None
