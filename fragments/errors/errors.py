"""How a program ends: a message for people, an exit code for schedulers."""

import contextlib
import enum
import sys
from collections.abc import Iterator


class ExitCode(enum.IntEnum):
    """What is not worth another try, and what is; 74 and 75 as in sysexits.h."""

    MISTAKE = 2  # in what was given, or a loss that diverged: it would end in the same way again
    DOES_NOT_FIT = 3  # of compile alone: the step needs more memory than the devices have
    STORAGE = 74  # the disk is full, or the storage cannot be reached
    PREEMPTED = 75  # stopped by a signal, all of it saved
    HUNG = 76  # no step ended in time
    CORRUPT = 77  # a device computes wrongly: another try, but without it


class Stop(Exception):
    """Ends the program by a message and an exit code."""

    def __init__(self, message: str, code: ExitCode = ExitCode.MISTAKE):
        super().__init__(message)
        self.code = code


class InputError(Stop):
    """Settings, data, a tokenizer, a prompt or a directory that cannot be used: which, why, and what to do."""


@contextlib.contextmanager
def ending_with_messages() -> Iterator[None]:
    """Ends the program by a message and an exit code, where it would end by a Stop or for want of storage."""
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # as a shell does
    except (Stop, OSError) as error:
        is_mistake = isinstance(error, (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError))
        what = f"{error.filename}: {error.strerror}: give another path" if is_mistake and error.filename else error
        print(f"error: {what}", file=sys.stderr)
        raise SystemExit(ExitCode.MISTAKE if is_mistake else getattr(error, "code", ExitCode.STORAGE)) from None
