"""A lock on a run's directory, so that no two jobs write to it."""

import contextlib
import datetime
import math
import os
import secrets
import socket
import threading
import time
from typing import ClassVar

import jax
import orbax.checkpoint as ocp
from etils import epath

from generator.language import requires, splice
from generator.language.roles import WAITS, ExitCode, InputError, Stop, check_writable, on_all_processes

requires("agreement")

RENEWAL = 3  # seconds between renewals of a lock
LEASE = 30  # seconds without renewal after which a lock's process counts as dead


class DirectoryLock:
    """Locks a directory for this job in a `with` block, by the file `lock` there, which process 0 renews.

    Takes over a lock whose process is gone from this host, or that is no longer renewed.
    """

    locks: ClassVar[list] = []  # by this process

    def __init__(self, directory: epath.Path):
        self.directory = directory
        self.path = directory / "lock"
        self.is_first = jax.process_index() == 0
        # containers may share their host's name, but not its processes
        namespace = os.path.basename(os.path.realpath("/proc/self/ns/pid"))
        self.host = f"on {socket.gethostname()} {namespace}"
        self.holder = f"process {os.getpid()} {self.host} since {datetime.datetime.now()}"
        self.was_held = False
        self.renewed = -math.inf
        self.released = threading.Event()
        self.thread = threading.Thread(target=self.renew, daemon=True)

    def __enter__(self) -> "DirectoryLock":
        """Takes the lock, or raises InputError that names its holder, in all processes."""
        on_all_processes(lambda: self.is_first and self.take())
        self.was_held = True
        self.holder = self.read().partition(", renewed ")[0]  # that of process 0
        self.locks.append(self)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        self.locks.remove(self)
        self.released.set()
        if self.is_first:
            self.thread.join()
            if self.read().startswith(self.holder):
                self.path.unlink()
        if isinstance(error, OSError) and not error.filename:
            raise OSError(f"{self.directory}: {error}") from None

    def read(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self.path.read_bytes().decode(errors="replace")
        return ""

    def check(self, gone: str = "") -> None:
        """Raises InputError if another job has the lock; one with the text `gone` is a dead process's."""
        if (text := self.read()) and text != gone and not text.startswith(self.holder):
            # a lock of ours was not renewed in time: a scheduler may try again
            code = ExitCode.STORAGE if self.was_held else ExitCode.MISTAKE
            raise Stop(f"{self.directory}: in use by {text}: stop that run, or give another directory", code)

    def write(self, gone: str = "") -> None:
        new = self.path.with_name(f"lock.{secrets.token_hex(4)}")
        now = time.monotonic()
        try:
            new.write_text(f"{self.holder}, renewed {datetime.datetime.now()}")
            self.check(gone)  # writing may have taken long
            new.replace(self.path)
            self.renewed = now
        finally:
            new.unlink(missing_ok=True)

    def take(self) -> None:
        if "://" not in str(self.directory):
            check_writable(self.directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        if self.path.is_dir():
            raise InputError(f"{self.path}: a directory where the run's lock goes: remove it")
        holder = self.read()
        deadline = time.monotonic() + LEASE  # the clocks of two hosts are not compared
        is_local = self.host in holder and os.path.exists("/proc/self")
        is_gone = is_local and not os.path.exists(f"/proc/{holder.split()[1]}")
        while (text := self.read()) and not is_gone and time.monotonic() < deadline:
            if text != holder:
                self.check()
            time.sleep(0.1)
        self.write(gone=holder)
        time.sleep(0.5)  # others that took it at the same moment have written by then: the last has it
        self.check()
        self.thread.start()

    def renew(self) -> None:
        while not self.released.wait(RENEWAL):
            try:
                self.write()
            except InputError:
                self.renewed = -math.inf  # the next check reads, and reports it
            except OSError:
                pass  # the next save reports it


def check_lock(quick: bool = False) -> None:
    """Raises InputError if another job has taken over a directory that this process holds.

    `quick` reads nothing while, by this host's clock, no other job can have it yet.
    """
    for lock in DirectoryLock.locks:
        if not quick or (lock.is_first and time.monotonic() - lock.renewed > LEASE - 2 * RENEWAL):
            lock.check()


@splice("train.directory")
def _(stack, directory):
    stack.enter_context(DirectoryLock(directory))


@splice("Checkpoints.options")
def _(options):
    # called when all is written, right before a checkpoint is renamed to its step
    options.async_options = ocp.options.AsyncOptions(post_finalization_callback=check_lock)


@splice("Checkpoints.before_save")
def _():
    on_all_processes(check_lock, WAITS)


@splice("Monitor.write")
def _():
    check_lock(quick=True)


@splice("Monitor.draw", "Monitor.draw_report", "Monitor.upload", "Monitor.upload_all", optional=True)
def _():
    check_lock(quick=True)
