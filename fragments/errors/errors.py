"""How a program ends: a message for people, an exit code for schedulers."""

import contextlib
import enum
import sys
from collections.abc import Iterator


class ExitCode(enum.IntEnum):
    """Tells schedulers what is worth another try; 74 and 75 as in sysexits.h."""

    MISTAKE = 2  # invalid input, or a loss that diverged: another try would end in the same way
    DOES_NOT_FIT = 3  # only from compile: the step needs more memory than the devices have
    STORAGE = 74  # the disk is full, or the storage cannot be reached
    PREEMPTED = 75  # stopped by a signal, all of it saved
    HUNG = 76  # no step ended in time
    CORRUPT = 77  # a device computes wrongly: another try, but without it


class Stop(Exception):
    """Ends the program with a message and an exit code."""

    def __init__(self, message: str, code: ExitCode = ExitCode.MISTAKE):
        super().__init__(message)
        self.code = code


class InputError(Stop):
    """Settings, data, a tokenizer, a prompt or a directory that cannot be used: which, why, and what to do."""


@contextlib.contextmanager
def ending_with_messages() -> Iterator[None]:
    """Ends the program with a message and an exit code if it raises Stop or OSError."""
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # as a shell does
    except (Stop, OSError) as error:
        is_mistake = isinstance(error, (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError))
        what = f"{error.filename}: {error.strerror}: give another path" if is_mistake and error.filename else error
        print(f"error: {what}", file=sys.stderr)
        raise SystemExit(ExitCode.MISTAKE if is_mistake else getattr(error, "code", ExitCode.STORAGE)) from None
