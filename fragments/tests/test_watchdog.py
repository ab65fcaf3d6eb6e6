"""A run that hangs is ended, by a thread that runs while the program itself waits."""

from generator.roles import PACKAGE, run_python

HANGS = """
import pathlib, sys, threading
from {package}.distributed import start_watchdog

watchdog = start_watchdog(pathlib.Path(sys.argv[1]))
for _ in range(3):
    watchdog.put(1.0)
if sys.argv[2] == "rests":
    watchdog.put(None)
def wait_for_another_process():
    threading.Event().wait(4)
wait_for_another_process()
"""


def test_a_program_that_hangs_ends_and_leaves_its_stacks(tmp_path):
    process = run_python("-c", HANGS.format(package=PACKAGE.name), str(tmp_path), "hangs")
    assert process.returncode == 76
    assert process.stderr == f"error: no step for 1 s: all stacks are in {tmp_path}/stacks-0.txt\n"
    assert "in wait_for_another_process" in (tmp_path / "stacks-0.txt").read_text()


def test_a_program_that_has_ended_its_steps_may_take_its_time(tmp_path):
    process = run_python("-c", HANGS.format(package=PACKAGE.name), str(tmp_path), "rests")
    assert process.returncode == 0, process.stderr
    assert not list(tmp_path.iterdir())
