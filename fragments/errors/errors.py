"""How a program ends: a message for people, an exit code for schedulers."""

import contextlib
import errno
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator

from generator.language import point


class InputError(Exception):
    """Settings, data, a tokenizer, a prompt or a directory that cannot be used: which, why, and what to do."""


@contextlib.contextmanager
def ending_with_messages() -> Iterator[None]:
    """Ends the program with a message: with exit code 2 for a mistake, 74 if storage fails, as in sysexits.h."""
    point("ending_with_messages.start")
    try:
        yield
    except (KeyboardInterrupt, BrokenPipeError):  # of a reader such as head
        raise SystemExit(130) from None  # as a shell does
    except (InputError, OSError) as error:
        kinds = FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError
        is_path = isinstance(error, kinds) or getattr(error, "errno", 0) in (errno.EROFS, errno.ENAMETOOLONG)
        what = f"{at}: cannot be read or written: {error.strerror}" if (at := getattr(error, "filename", "")) else error
        if isinstance(error, OSError):
            advice = "give another path" if is_path else "run the same command again once the storage works"
            what = f"{what}: {advice}"
        print(f"error: {what}", file=sys.stderr)
        with point("ending_with_messages.code", error, is_path):
            raise SystemExit(2 if is_path or isinstance(error, InputError) else 74) from None


def end_with_parent() -> None:
    """Leaves Ctrl-C to the parent of a worker, and ends the worker if its parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=lambda: (multiprocessing.parent_process().join(), os._exit(1)), daemon=True).start()
