"""A process that fails starts again in its place, but not after a mistake, a signal, or too many failures."""

import signal
import subprocess
import sys

import pytest

from generator.language import requires
from generator.language.roles import PACKAGE, InputError, run_in_children, run_python

requires("recovery")

# its children end, one after the other, as the arguments say
PROGRAM = f"""
import atexit, os, pathlib, signal, sys
from {PACKAGE.name}.cluster import run_in_children
path = pathlib.Path(sys.argv[1])
run_in_children(int(sys.argv[2]))
path.write_text(path.read_text() + "*" if path.exists() else "*")
end = sys.argv[3:][len(path.read_text()) - 1]
if end == "error":
    atexit.register(os._exit, 3)  # as JAX waits there for other processes
    raise RuntimeError
if end == "wait":
    def say(*_):
        print("told", flush=True)
        os._exit(75)
    signal.signal(signal.SIGTERM, say)
    print("waits", flush=True)
    signal.pause()
os.kill(os.getpid(), -int(end)) if int(end) < 0 else os._exit(int(end))
"""


@pytest.mark.parametrize(
    ("restarts", "ends", "code"),
    [(9, ["-9", "1", "134", "76", "74", "0"], 0), (9, ["-6", "2"], 2), (1, ["1", "-9"], 137), (0, ["error"], 1)],
)
def test_failures_that_may_pass_are_tried_again(restarts, ends, code, tmp_path):
    process = run_python("-c", PROGRAM, str(tmp_path / "tries"), str(restarts), *ends)
    assert process.returncode == code, process.stderr
    assert len((tmp_path / "tries").read_text()) == len(ends)
    assert process.stderr.count("starts again; restarts left: ") == len(ends) - 1


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a child does not learn that its parent was killed")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_reaches_the_child_and_is_the_end(number, tmp_path):
    arguments = [sys.executable, "-c", PROGRAM, str(tmp_path / "tries"), "9", "-9", "wait"]
    process = subprocess.Popen(arguments, cwd=PACKAGE.parent, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "waits\n"
    process.send_signal(number)
    assert process.communicate(timeout=60)[0] == "told\n"
    assert process.returncode == (75 if number == signal.SIGTERM else -number)


def test_a_negative_number_is_refused():
    with pytest.raises(InputError, match="--restarts -1: must be 0 or more"):
        run_in_children(-1)
