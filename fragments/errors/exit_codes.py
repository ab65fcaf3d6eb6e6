"""Exit codes by name, for programs that end for more reasons than mistakes and storage."""

import enum

from generator.language import splice
from generator.language.roles import InputError


class ExitCode(enum.IntEnum):
    """Tells schedulers what is worth another try; 74 and 75 as in sysexits.h."""

    MISTAKE = 2  # invalid input, or a loss that diverged: another try would end in the same way
    STORAGE = 74  # the disk is full, or the storage cannot be reached
    PREEMPTED = 75  # stopped by a signal, all of it saved
    HUNG = 76  # no step ended in time
    CORRUPT = 77  # a device computes wrongly: another try, but without it


class Stop(InputError):
    """Ends the program with an exit code of its own."""

    def __init__(self, message: str, code: ExitCode = ExitCode.MISTAKE):
        super().__init__(message)
        self.code = code


@splice("train.preempted", optional=True)
def _():
    raise SystemExit(ExitCode.PREEMPTED)


@splice("ending_with_messages.code")
def _(error, is_path):
    default = ExitCode.MISTAKE if is_path or isinstance(error, InputError) else ExitCode.STORAGE
    raise SystemExit(getattr(error, "code", default)) from None
