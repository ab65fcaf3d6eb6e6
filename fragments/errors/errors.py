"""How a program ends: a message for people, an exit code for schedulers."""

import contextlib
import enum
import sys
from collections.abc import Iterator


class ExitCode(enum.IntEnum):
    """What is not worth another try, and what is; 74 and 75 as in sysexits.h."""

    MISTAKE = 2  # in what was given, or a loss that diverged: it would end in the same way again
    DOES_NOT_FIT = 3  # the step needs more memory than the devices have
    STORAGE = 74  # the disk is full, or the storage cannot be reached
    PREEMPTED = 75  # stopped by a signal, all of it saved


class InputError(Exception):
    """Settings, data, a tokenizer, a prompt or a directory that cannot be used: which, why, and what to do."""

    code = ExitCode.MISTAKE


class Preempted(Exception):
    """A signal ended the program before its time; all is saved."""


@contextlib.contextmanager
def ending_with_messages() -> Iterator[None]:
    """Ends the program by a message and an exit code where something cannot be used."""
    try:
        yield
    except InputError as error:
        code, message = error.code, error
    except OSError as error:
        code, message = ExitCode.STORAGE, error
    except Preempted as stop:
        print(stop, file=sys.stderr)
        raise SystemExit(ExitCode.PREEMPTED) from None
    else:
        return
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(code)
