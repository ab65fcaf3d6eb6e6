"""A lock on a run's directory, so that no two jobs write to it."""

import contextlib
import datetime
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

import jax
from etils import epath

from generator.language.roles import WAITS, ExitCode, InputError, together

RENEWAL = 3  # seconds between renewals of a lock
LEASE = 30  # seconds after which a lock that was not renewed is that of a dead process


@contextlib.contextmanager
def locked(directory: epath.Path) -> Iterator[Callable[[], None]]:
    """Holds a directory for this job, by the file `lock` there; gives a check that it still does, for before a save.

    Raises InputError, which names the holder, in all processes where another job has it. Process 0 renews the lock; one
    whose process is gone from this host, or which is renewed no more, is taken over. An OSError in between names the
    directory.
    """
    namespace = os.path.basename(os.path.realpath("/proc/self/ns/pid"))  # as containers may share their host's name
    path, place, released = directory / "lock", f"on {socket.gethostname()} {namespace}", threading.Event()
    holder, first = f"process {os.getpid()} {place} since {datetime.datetime.now()}", jax.process_index() == 0

    def read() -> str:
        with contextlib.suppress(FileNotFoundError):
            return path.read_text()
        return ""

    def check() -> None:
        if (text := read()) and not text.startswith(holder):
            # one that was ours was not renewed in time: a scheduler may try again
            code = ExitCode.STORAGE if thread.ident else ExitCode.MISTAKE
            raise InputError(f"{directory}: in use by {text}: stop that run, or give another directory", code)

    def write() -> None:
        new = path.with_name("lock.new")
        with contextlib.suppress(FileNotFoundError):  # another took the lock just now
            new.write_text(f"{holder}, renewed {datetime.datetime.now()}")
            new.replace(path)

    def take() -> None:
        directory.mkdir(parents=True, exist_ok=True)
        found, deadline = read(), time.monotonic() + LEASE  # the clocks of two hosts are not compared
        gone = place in found and os.path.exists("/proc/self") and not os.path.exists(f"/proc/{found.split()[1]}")
        while (text := read()) and not gone and time.monotonic() < deadline:
            if text != found:
                check()
            time.sleep(0.1)
        write()
        time.sleep(0.5)  # whoever took it at the same moment has written by then: the last one has it
        check()
        thread.start()

    def renew() -> None:
        while not released.wait(RENEWAL):
            with contextlib.suppress(InputError, OSError):  # the next save reports them
                check()
                write()

    thread = threading.Thread(target=renew, daemon=True)
    together(lambda: first and take())
    try:
        yield lambda: together(lambda: first and check(), WAITS)
    except OSError as error:
        raise error if error.filename else OSError(f"{directory}: {error}") from None
    finally:
        released.set()
        if first:
            thread.join()
            if read().startswith(holder):
                path.unlink()
