"""A trainer without the part cluster: how two processes join and begin from the same step; what failures are told as."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from distributed.jobs import free_port
from generator.disk.project import builtin_root
from generator.recipe.library import Library
from generator.weaver import weave

# both are read from the folder of the process: its newest step is that of its own host
PROGRAM = """
import os, sys
os.chdir(sys.argv[1])
from llama2_cpu import checkpoints, errors, parallel
with errors.ending_with_messages():
    parallel.join_job()
    import jax
    checkpoints.newest_config("run")
    print(jax.process_count())
"""
# Kubernetes' API, of which JAX asks for the address of pod 0 and the number of pods
KUBERNETES = """
from types import SimpleNamespace
from jax._src.clusters.k8s_cluster import K8sCluster
K8sCluster.get_coordinator_address = classmethod(lambda cls, **_: "127.0.0.1:{port}")
K8sCluster.get_process_count = classmethod(lambda cls: 2)
config = SimpleNamespace(load_incluster_config=lambda: None)
client = SimpleNamespace(CoreV1Api=object, BatchV1Api=object, exceptions=SimpleNamespace(ApiException=OSError))
"""
# process 1 gets the signal that its host is taken back, in its third step
PREEMPTED = """
import dataclasses, email, os, signal, sys
from pathlib import Path
os.chdir(sys.argv[1])
from llama2_cpu import config, errors, parallel, trainer
with errors.ending_with_messages():
    parallel.join_job()
    import jax
    read = trainer.Batches.__next__

    def signalled(self):
        if jax.process_index() == 1 and self.sequences.packed == 2 * small.batch_size:
            os.kill(os.getpid(), signal.SIGTERM)
        return read(self)

    trainer.Batches.__next__ = signalled
    sizes = dict(width=32, layers=1, heads=2, kv_heads=2, head_size=16, mlp_width=32, sequence_length=32, eval_share=0)
    run = dict(data=str(Path(email.__file__).parent / "mime/m*.py"), checkpoint_dir="run", steps=100_000)
    small = dataclasses.replace(config.PRESETS["tiny"], **sizes, **run, checkpoint_every=100_000)
    trainer.train(small)
"""
# what fails while a good checkpoint is read, and while one is written to a disk without room
FAILURES = """
import dataclasses, os, resource, sys
from unittest import mock
os.chdir(sys.argv[1])
from llama2_cpu import checkpoints, config, errors, parallel, trainer
import jax

sizes = dict(width=32, layers=1, heads=2, kv_heads=2, head_size=16, mlp_width=32)
small = dataclasses.replace(config.PRESETS["tiny"], **sizes)
mesh = parallel.make_mesh(1, 1, 1)
state = trainer.create_state(small, mesh)

def save(directory):
    run = checkpoints.Checkpoints(directory, small).open()
    run.save(0, {"model": state.model})
    run.close()

def end(program, *arguments):
    try:
        with errors.ending_with_messages():
            program(*arguments)
    except SystemExit as ended:
        print("exit code", ended.code, flush=True)
    except ValueError as error:
        print("not caught:", error, flush=True)

save("run")
for error in PermissionError(13, "Permission denied", "run/0/x"), jax.errors.JaxRuntimeError("UNAVAILABLE: reset"):
    with mock.patch.object(checkpoints.Checkpoints, "read", side_effect=error):
        end(checkpoints.load_checkpoint, "run", mesh)
with mock.patch.object(checkpoints, "Decoder", side_effect=ValueError("a fault of the model")):
    end(checkpoints.load_checkpoint, "run", mesh)
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
end(save, "full")
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    package = weave("llama2", "cpu", Library.read((builtin_root(),)), parts=())
    for path, text in package.files.items():
        if path.endswith(".py") and "/" not in path:
            (folder / package.name).mkdir(exist_ok=True)
            (folder / package.name / path).write_text(text)
    return folder


def run(
    packages: Path, folders: list[Path], variables: list[dict[str, str]], program: str = PROGRAM
) -> list[tuple[int, str]]:
    """The exit codes and outputs of a job of processes, each in a folder and with variables of its own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "SLURM_", "OMPI_"))}
    inherited |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": f"{packages}{os.pathsep}{folders[0]}"}
    job = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(folder)],
            env=inherited | own,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for folder, own in zip(folders, variables, strict=True)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in job]
    return [(process.returncode, output) for process, output in zip(job, outputs, strict=True)]


def test_every_pod_of_an_indexed_job_joins(packages, tmp_path):
    (tmp_path / "kubernetes.py").write_text(KUBERNETES.format(port=free_port()))
    variables = [{"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": str(index)} for index in (0, 1)]
    assert all(code == 0 and output.endswith("2\n") for code, output in run(packages, [tmp_path] * 2, variables))


@pytest.mark.parametrize("index", "02")
def test_a_pod_that_finds_no_job_says_so(packages, tmp_path, index):
    [(code, output)] = run(packages, [tmp_path], [{"JOB_COMPLETION_INDEX": index}])
    assert code == 2 and f"error: job JOB_COMPLETION_INDEX={index}: " in output and "set all of JAX_" in output


@pytest.mark.parametrize("steps", [([], [6]), ([4, 6], [6, 4]), ([], [])], ids=str)
def test_processes_begin_from_one_step_or_end(packages, tmp_path, steps):
    """Each step is a damaged one: a process that reads it says so."""
    job = {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}", "JAX_NUM_PROCESSES": "2"}
    folders = [tmp_path / "0", tmp_path / "1"]
    for folder, own in zip(folders, steps, strict=True):
        for name in ("run", *(f"run/{step}" for step in own)):
            (folder / name).mkdir(parents=True)
    ended = run(packages, folders, [job | {"JAX_PROCESS_ID": str(index)} for index in (0, 1)])
    if steps == ([], []):
        assert all(code == 0 and output.endswith("2\n") for code, output in ended)
    else:
        same = sorted(steps[0]) == sorted(steps[1])
        said = "6 is damaged: " if same else "processes see the newest steps ["
        assert all(code == 2 and said in output for code, output in ended), ended


def test_a_signal_to_one_process_ends_both_after_the_same_step(packages, tmp_path):
    job = {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}", "JAX_NUM_PROCESSES": "2"}
    variables = [job | {"JAX_PROCESS_ID": str(index)} for index in (0, 1)]
    ended = run(packages, [tmp_path] * 2, variables, PREEMPTED)
    assert [code for code, _ in ended] == [75, 75], ended
    [step] = [path.name for path in (tmp_path / "run").iterdir() if path.name.isdigit()]
    said = f"stopped by a signal after step {step}, which is saved: --checkpoint-dir {tmp_path}/run continues"
    assert all(said in output for _, output in ended)


def test_only_damage_is_told_as_damage(packages, tmp_path):
    [(_, output)] = run(packages, [tmp_path], [{}], FAILURES)
    assert [line.replace(str(tmp_path), "") for line in output.splitlines()] == [
        "error: run/0/x: cannot be read or written: Permission denied: give another path",
        "exit code 2",
        "error: /run/0 cannot be read: UNAVAILABLE: reset: run the same command again once the storage works",
        "exit code 74",
        "not caught: a fault of the model",
        output.splitlines()[5].replace(str(tmp_path), ""),
        "exit code 74",
    ]
    assert "/full cannot be written: " in output.splitlines()[5] and "Traceback" not in output
