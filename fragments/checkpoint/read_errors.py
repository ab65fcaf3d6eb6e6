"""What an error of reading a checkpoint means: it is damaged, too large for memory, or storage fails."""

import contextlib
from collections.abc import Iterator

import jax
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
        if isinstance(error, (MemoryError, jax.errors.JaxRuntimeError)):
            raise InputError(f"{folder} cannot be loaded: {reason}: free memory, or use more devices") from None
        missing = FileNotFoundError, NotADirectoryError, IsADirectoryError
        garbled = ValueError, LookupError, TypeError, AttributeError, RecursionError
        fails = "os_error_code" in str(error) and not reason.startswith("NOT_FOUND")  # of TensorStore's ValueErrors
        point("reading.fails", reason, fails)
        if fails or not isinstance(error, missing + garbled):
            raise OSError(f"{folder} cannot be read: {reason}") from None
        with point("reading.damaged", folder, reason):
            raise InputError(f"{folder} is damaged: {reason}: mend it, or move it away to use the one before") from None
