"""Recovery: a process that fails starts again in its place, and the job goes on from its newest checkpoint."""

import ctypes
import os
import signal
import sys
import time
from typing import Any

from generator.language import requires, splice
from generator.language.roles import ExitCode, InputError

requires("train/command")

FINAL = 0, ExitCode.MISTAKE, ExitCode.PREEMPTED, ExitCode.CORRUPT  # another try here would end in the same way


@splice("CommandLine.fields")
def _():
    restarts: int = 0  # times that this process, if it fails, starts again in its place; its job goes on with it


def end_at_once(*error: Any) -> None:
    """Ends this process with an error at once: JAX would wait a minute for the others, which wait for this one."""
    sys.__excepthook__(*error)
    sys.stdout.flush()
    os._exit(1)


def begin_child(handlers: dict[int, Any]) -> None:
    """Gives a child its own handlers of signals, and lets these come."""
    for number, handler in handlers.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)
    sys.excepthook = end_at_once
    os.setsid()  # Ctrl-C of a terminal comes from the parent alone
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG: sent if the parent is killed


def wait_for(child: int) -> int:
    """Returns the exit code of a child once it has ended, as a shell does.

    Asks ten times a second: a signal right before a call that waits would be handled only after it.
    """
    ended, status = 0, 0
    while not ended:
        time.sleep(0.1)
        ended, status = os.waitpid(child, os.WNOHANG)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def run_in_children(restarts: int) -> None:
    """Returns in a child process, and in a new one each time it fails; ends as the last of them.

    A child shares what is imported, so that it starts at once. When it joins the job, JAX's coordination service sees
    that the one before is gone, and ends all other processes, which start again as well.
    """
    if restarts < 0:
        raise InputError(f"--restarts {restarts}: must be 0 or more")
    child = 0
    signals = []

    def pass_on(number: int, _: object) -> None:
        signals.append(number)
        if child:
            os.kill(child, number)

    handlers = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGINT)}
    for left in reversed(range(restarts + 1)):
        # until the child has its handlers: Python drops a signal that comes while it forks
        signal.pthread_sigmask(signal.SIG_BLOCK, handlers)
        child = os.fork()  # before JAX has devices, and with them threads
        if not child:
            begin_child(handlers)
            return
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)
        for number in signals:  # that came before there was a child
            os.kill(child, number)
        code = wait_for(child)
        child = 0
        if signals or code in FINAL or not left:
            raise SystemExit(code)
        print(f"warning: exit code {code}: starts again; restarts left: {left - 1}", file=sys.stderr, flush=True)


@splice("command.given")
def _(first_pass):
    if first_pass.restarts:
        from generator.language.roles import run_in_children

        run_in_children(first_pass.restarts)
