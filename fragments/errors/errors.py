"""How a program ends: a message for people, an exit code for schedulers."""

import contextlib
import sys
from collections.abc import Iterator

from generator.language import point


class InputError(Exception):
    """Settings, data, a tokenizer, a prompt or a directory that cannot be used: which, why, and what to do."""


@contextlib.contextmanager
def ending_with_messages() -> Iterator[None]:
    """Ends the program with a message: with exit code 2 for a mistake, 74 if storage fails, as in sysexits.h."""
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # as a shell does
    except (InputError, OSError) as error:
        is_path = isinstance(error, (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError))
        what = f"{error.filename}: {error.strerror}: give another path" if is_path and error.filename else error
        print(f"error: {what}", file=sys.stderr)
        with point("ending_with_messages.code", error, is_path):
            code = 2 if is_path or isinstance(error, InputError) else 74
        raise SystemExit(code) from None
