"""A thread ends a run that hangs, while the program itself waits."""

import subprocess
from pathlib import Path

from generator.language.roles import PACKAGE, run_python


def run_program(directory: Path, limits: str) -> subprocess.CompletedProcess:
    """Runs a program with these time limits for its steps, which then waits for 4 seconds."""
    program = f"""
import pathlib, threading
from {PACKAGE.name}.cluster import start_watchdog

watchdog = start_watchdog(pathlib.Path({str(directory)!r}))
for limit in {limits}:
    watchdog.put(limit)
def wait_for_another_process():
    threading.Event().wait(4)
wait_for_another_process()
"""
    return run_python("-c", program)


def test_a_program_that_hangs_ends_and_leaves_its_stacks(tmp_path):
    process = run_program(tmp_path, "9.0, 1.0")
    assert process.returncode == 76
    assert process.stderr == f"error: no step for 1 s: all stacks are in {tmp_path}/stacks-0.txt\n"
    assert "in wait_for_another_process" in (tmp_path / "stacks-0.txt").read_text()


def test_a_program_without_a_limit_may_take_its_time(tmp_path):
    for limits in "1.0, None", "0.0,":
        process = run_program(tmp_path, limits)
        assert process.returncode == 0, process.stderr
        assert not list(tmp_path.iterdir())
