"""Runs a program of a package, and passes Ctrl-C on to it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from generator.errors import LoomError

PATIENCE = 20  # seconds that a program has to remove what it has not finished


def run_program(words: list[str], folder: Path) -> str:
    """Runs `python WORDS` in a folder; returns what it prints. Its error becomes a LoomError."""
    child = subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,  # or it would get Ctrl-C from the terminal and from here: the second ends its cleaning up
    )
    try:
        output, errors = child.communicate()
    except KeyboardInterrupt:
        child.send_signal(signal.SIGINT)
        try:
            child.communicate(timeout=PATIENCE)
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            child.kill()
            child.wait()
        raise
    if child.returncode == -signal.SIGKILL:
        raise LoomError("was killed, as happens when memory runs out", words[1], "Use a machine with more memory.")
    if child.returncode:
        _, _, reason = errors.rpartition("error: ")
        raise LoomError(reason.strip() or f"ended with exit code {child.returncode}", None if reason else words[1])
    return output
