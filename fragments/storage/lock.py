"""A lock on a run's directory, so that no two jobs write to it."""

import contextlib
import datetime
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator

import jax
from etils import epath

from generator.language.roles import ExitCode, InputError, together

RENEWAL = 3  # seconds between renewals of a lock
LEASE = 30  # seconds after which a lock that was not renewed is that of a dead process


@contextlib.contextmanager
def locked(directory: epath.Path) -> Iterator[Callable[..., None]]:
    """Holds a directory for this job, by the file `lock` there; gives a check that it still does, for any thread.

    Raises InputError, which names the holder, in all processes where another job has it. Process 0 renews the lock; one
    whose process is gone from this host, or which is renewed no more, is taken over. An OSError in between names the
    directory. `check(quick=True)` reads nothing while no other job can have it yet, by the clock of this host.
    """
    namespace = os.path.basename(os.path.realpath("/proc/self/ns/pid"))  # as containers may share their host's name
    path, place, released = directory / "lock", f"on {socket.gethostname()} {namespace}", threading.Event()
    holder, first = f"process {os.getpid()} {place} since {datetime.datetime.now()}", jax.process_index() == 0
    held, renewed = False, -math.inf

    def read() -> str:
        with contextlib.suppress(FileNotFoundError):
            return path.read_bytes().decode(errors="replace")
        return ""

    def check(quick: bool = False, gone: str = "") -> None:
        if quick and (not first or time.monotonic() - renewed < LEASE - 2 * RENEWAL):
            return
        if (text := read()) and text != gone and not text.startswith(holder):
            # one that was ours was not renewed in time: a scheduler may try again
            code = ExitCode.STORAGE if held else ExitCode.MISTAKE
            raise InputError(f"{directory}: in use by {text}: stop that run, or give another directory", code)

    def write(gone: str = "") -> None:
        nonlocal renewed
        new, now = path.with_name(f"lock.{secrets.token_hex(4)}"), time.monotonic()
        try:
            new.write_text(f"{holder}, renewed {datetime.datetime.now()}")
            check(gone=gone)  # writing may have taken long
            new.replace(path)
            renewed = now
        finally:
            new.unlink(missing_ok=True)

    def take() -> None:
        directory.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise InputError(f"{path}: a directory where the run's lock goes: remove it")
        found, deadline = read(), time.monotonic() + LEASE  # the clocks of two hosts are not compared
        gone = place in found and os.path.exists("/proc/self") and not os.path.exists(f"/proc/{found.split()[1]}")
        while (text := read()) and not gone and time.monotonic() < deadline:
            if text != found:
                check()
            time.sleep(0.1)
        write(gone=found)
        time.sleep(0.5)  # whoever took it at the same moment has written by then: the last one has it
        check()
        thread.start()

    def renew() -> None:
        nonlocal renewed
        while not released.wait(RENEWAL):
            try:
                write()
            except InputError:
                renewed = -math.inf  # the next check reads, and reports it
            except OSError:
                pass  # the next save reports it

    thread = threading.Thread(target=renew, daemon=True)
    together(lambda: first and take())
    held, holder = True, read().partition(", renewed ")[0] if not first else holder  # that of process 0
    try:
        yield check
    except OSError as error:
        raise error if error.filename else OSError(f"{directory}: {error}") from None
    finally:
        released.set()
        if first:
            thread.join()
            if read().startswith(holder):
                path.unlink()
