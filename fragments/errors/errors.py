"""How a program ends: a message for people, an exit code for schedulers."""

import contextlib
import enum
import sys
from collections.abc import Iterator


class ExitCode(enum.IntEnum):
    """What is not worth another try, and what is; 74 and 75 as in sysexits.h."""

    MISTAKE = 2  # in what was given, or a loss that diverged: it would end in the same way again
    STORAGE = 74  # the disk is full, or the storage cannot be reached
    PREEMPTED = 75  # stopped by a signal, all of it saved
    HUNG = 76  # no step ended in time
    CORRUPT = 77  # a device computes wrongly: another try, but without it


class InputError(Exception):
    """Settings, data, a tokenizer, a prompt or a directory that cannot be used: which, why, and what to do."""


class CorruptionError(Exception):
    """One computation gave two results: which."""


@contextlib.contextmanager
def ending_with_messages() -> Iterator[None]:
    """Ends the program by a message and an exit code where something cannot be used."""
    try:
        yield
    except InputError as error:
        code, message = ExitCode.MISTAKE, error
    except CorruptionError as error:
        code, message = ExitCode.CORRUPT, error
    except OSError as error:
        code, message = ExitCode.STORAGE, error
    else:
        return
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(code)
