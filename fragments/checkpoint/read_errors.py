"""What an error of reading or writing a checkpoint means: damage, too little memory, or storage that fails."""

import contextlib
from collections.abc import Iterator

from etils import epath

from generator.language import point
from generator.language.roles import InputError


@contextlib.contextmanager
def reading(folder: epath.Path) -> Iterator[None]:
    """Raises InputError if what is read is damaged, or too large for memory; OSError if it cannot be read now."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        error = error.__cause__ or error  # Orbax raises plain Exceptions from TensorStore's
        reason = " ".join(str(error).partition(" [")[0].split())  # TensorStore adds a specification in brackets
        if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in reason:
            raise InputError(f"{folder} cannot be loaded: {reason}: free memory, or use more devices") from None
        missing = FileNotFoundError, NotADirectoryError, IsADirectoryError
        if isinstance(error, OSError) and error.filename and not isinstance(error, missing):
            raise error from None
        garbled = ValueError, LookupError, TypeError, AttributeError, RecursionError
        fails = "os_error_code" in str(error) and not reason.startswith("NOT_FOUND")  # of TensorStore's ValueErrors
        point("reading.fails", reason, fails)
        if fails or not isinstance(error, missing + garbled):
            raise OSError(f"{folder} cannot be read: {reason}") from None
        with point("reading.damaged", folder, reason):
            raise InputError(f"{folder} is damaged: {reason}: mend it, or move it away to use the one before") from None


@contextlib.contextmanager
def writing(folder: epath.Path) -> Iterator[None]:
    """Raises OSError if storage refuses what is written, of which TensorStore makes a ValueError."""
    try:
        yield
    except ValueError as error:
        reason = " ".join(str(error).partition(" [")[0].split())
        raise OSError(f"{folder} cannot be written: {reason}") from None
