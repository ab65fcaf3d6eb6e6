"""What a process makes of its environment before it is one of a job, and how jobs end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

from distributed.jobs import environment, free_port

JOIN = "from llama2_cpu import cluster, errors\ncluster.TIMEOUTS['initialization_timeout'] = 2\n"
JOIN += "with errors.ending_with_messages():\n    cluster.join_job()\n    import jax; print(jax.process_count())"
FULL = {"JAX_COORDINATOR_ADDRESS": "127.0.0.1:1", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1"}


def join(cache, **variables: str) -> subprocess.CompletedProcess:
    settings = environment(cache, 1, 1, **variables)
    return subprocess.run([sys.executable, "-c", JOIN], env=settings, capture_output=True, text=True, timeout=200)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({k: v for k, v in FULL.items() if k != "JAX_PROCESS_ID"}, "JAX_PROCESS_ID missing beside JAX_COORDINATOR"),
        ({"JAX_PROCESS_ID": "0"}, "JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES missing beside JAX_PROCESS_ID: set all"),
        (FULL | {"JAX_PROCESS_ID": "2"}, "JAX_PROCESS_ID=2: process_id and num_processes must be nonnegative"),
        (FULL | {"JAX_NUM_PROCESSES": "two"}, "JAX_NUM_PROCESSES=two, JAX_PROCESS_ID=1: invalid literal"),
        (FULL | {"JAX_COORDINATOR_ADDRESS": "host"}, "JAX_COORDINATOR_ADDRESS=host, JAX_NUM_PROCESSES=2"),
        ({"SLURM_NTASKS": "4"}, "SLURM_NTASKS=4 announces several processes, which JAX does not find"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_SIZE=2 announces several processes"),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, "TPU_WORKER_HOSTNAMES announces several processes"),
        ({"MEGASCALE_NUM_SLICES": "2"}, "MEGASCALE_NUM_SLICES=2 announces several processes"),
        ({"JOB_COMPLETION_INDEX": "0"}, "JOB_COMPLETION_INDEX=0 announces several processes"),
        ({"JOB_COMPLETION_INDEX": "1"}, "JOB_COMPLETION_INDEX=1 announces several processes"),
    ],
    ids=str,
)
def test_what_is_missing_is_named(tmp_path, variables, message):
    process = join(tmp_path, **variables)
    assert process.returncode == 2, process.stdout + process.stderr
    assert process.stderr.startswith("error: ") and message in process.stderr and process.stderr.count("\n") == 1


def test_a_coordinator_that_is_not_there_is_named(tmp_path):
    process = join(tmp_path, **FULL | {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}"})
    assert process.returncode == os.EX_IOERR
    assert process.stderr.startswith("error: JAX_COORDINATOR_ADDRESS 127.0.0.1:") and "reached" in process.stderr


def run(cache, code: str) -> int:
    command = [sys.executable, "-c", f"import os, signal, socket\nfrom llama2_cpu import cluster\n{code}"]
    return subprocess.run(command, env=environment(cache, 1, 1), timeout=200).returncode


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_a_coordinator_may_have_an_address_of_ipv6(tmp_path):
    listen = "server = socket.create_server(('::1', 0), family=socket.AF_INET6)\n"
    code = "cluster.TIMEOUTS['initialization_timeout'] = 1\ncluster.await_coordinator('[::1]', server.getsockname()[1])"
    assert run(tmp_path, listen + code) == 0


@pytest.mark.parametrize("line", ["os.kill(os.getpid(), signal.SIGTERM); return call(*arguments)", "return late(call)"])
def test_a_signal_before_there_is_a_child_is_not_lost(tmp_path, line):
    """One that comes before the child is made, and one right afterwards."""
    patched = f"def fork(*arguments):\n    {line}\ncall, os.fork = os.fork, fork\n"
    late = "def late(call):\n    child = call()\n    child and os.kill(os.getpid(), signal.SIGTERM)\n    return child\n"
    assert run(tmp_path, f"{late}{patched}cluster.run_in_children(1)\nsignal.pause()") == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    "variables", [{}, {"SLURM_NTASKS": "1", "SLURM_JOB_ID": "7"}, {"KUBERNETES_SERVICE_HOST": "a"}]
)
def test_one_process_is_alone_and_silent(tmp_path, variables):
    process = join(tmp_path, **variables)
    assert (process.returncode, process.stdout, process.stderr) == (0, "1\n", "")
