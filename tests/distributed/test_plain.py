"""A trainer without the part cluster, in two processes: how they join, and that they begin from the same step."""

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


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    package = weave("llama2", "cpu", Library.read((builtin_root(),)), parts=())
    for path, text in package.files.items():
        if path.endswith(".py") and "/" not in path:
            (folder / package.name).mkdir(exist_ok=True)
            (folder / package.name / path).write_text(text)
    return folder


def run(packages: Path, folders: list[Path], variables: list[dict[str, str]]) -> list[tuple[int, str]]:
    """The exit codes and outputs of a job of processes, each in a folder and with variables of its own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "SLURM_", "OMPI_"))}
    inherited |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": f"{packages}{os.pathsep}{folders[0]}"}
    job = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder)],
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
