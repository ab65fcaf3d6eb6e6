"""Checkpoints of two processes: one that cannot read, or reads what is damaged, decides for both."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from compiling import FAST
from whole import whole_packages

# python -c DRIVER NUMBER COUNT PORT DIRECTORY FAULT
DRIVER = """
import dataclasses, os, sys, time
import jax
number, count, port, directory, fault = *map(int, sys.argv[1:4]), *sys.argv[4:]
if count > 1:
    jax.distributed.initialize(f"127.0.0.1:{port}", count, number)
from llama2_cpu import checkpoints as checkpoint
from llama2_cpu import cluster, errors
from llama2_cpu.parallel import abstract, make_mesh
from llama2_cpu.tests.saved import Numbers
from llama2_cpu.tests.small import SMALL
from llama2_cpu.step import checkpoint_items, create_state, new_state

mesh = make_mesh(1, -1, 1)
cluster.WAITS = checkpoint.WAITS = (0.1, 0.1)
read = checkpoint.Checkpoints.read
tries = []

def fails(self, step, item, arguments):
    if number == 1 and step == 7 and item == "model":
        tries.append(step)
        if fault == "away" or fault == "away once" and len(tries) == 1:
            raise ValueError("UNAVAILABLE: Error reading in OCDBT database")
        if fault == "missing":
            raise FileNotFoundError("arrays are gone")
    return read(self, step, item, arguments)

checkpoint.Checkpoints.read = fails
if fault == "load":
    _, model = checkpoint.load_checkpoint(directory, mesh)
    print("sum", float(sum(abs(x).sum() for x in jax.tree.leaves(model))))
    sys.exit()
state = create_state(SMALL, mesh)
checkpoints = checkpoint.Checkpoints(directory, SMALL).open()
for step in 3, 7:
    done = dataclasses.replace(state, step=state.step + step)
    checkpoints.save(step, checkpoint_items(done), Numbers(step))
checkpoints.close()
target = checkpoint_items(abstract(lambda: new_state(SMALL), mesh))
for fault in "none", "away once", "away", "missing":
    tries.clear()
    checkpoints = checkpoint.Checkpoints(directory, SMALL)
    try:
        step, _, items = checkpoints.restore(lambda _: target, Numbers())
        print(f"{fault}: step {step} {int(items['training'].step)}", sorted(os.listdir(directory))[0])
    except OSError as error:
        print(f"{fault}: OSError", sorted(os.listdir(directory))[0])
try:
    with cluster.DirectoryLock(checkpoint.epath.Path(directory)):
        if number == 0:
            open(f"{directory}/lock", "w").write("process 5 on another since now")
        cluster.on_all_processes(cluster.check_lock)
except errors.InputError as error:
    print("taken over:", error)
"""


def run(directory: Path, fault: str, count: int = 2) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each process."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    environment = {"JAX_PLATFORMS": "cpu", "PATH": "", "XLA_FLAGS": FAST}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(number), str(count), str(port), str(directory), fault],
            cwd=whole_packages(),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    try:
        outputs = [process.communicate(timeout=150) for process in processes]
        return [(process.returncode, *output) for process, output in zip(processes, outputs, strict=True)]
    finally:
        for process in processes:
            process.kill()


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    directory = tmp_path_factory.mktemp("saved") / "run"
    return directory, run(directory, "all")


def test_two_processes_decide_alike(two_processes):
    _, found = two_processes
    assert [code for code, *_ in found] == [0, 0], found
    for _, out, _ in found:
        lines = [line for line in out.splitlines() if not line.startswith("[Gloo]")]
        assert lines[:3] == ["none: step 7 7 3", "away once: step 7 7 3", "away: OSError 3"]  # nothing is put aside
        assert lines[3].startswith("missing: step 3 3")
    assert len(list(two_processes[0].glob("damaged-7-*"))) == 1
    assert "in use by process 5 on another" in found[0][1] and "taken over:" in found[1][1]


def test_one_process_reads_what_two_have_saved(two_processes):
    directory, _ = two_processes
    ((code, out, errors),) = run(directory, "load", 1)
    assert code == 0 and out.startswith("sum"), errors
