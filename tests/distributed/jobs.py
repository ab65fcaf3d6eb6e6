"""Jobs of real processes on this machine: each has two of the host's devices, and they talk over the loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from compiling import FAST
from whole import whole_packages


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def environment(cache: Path, processes: int, devices: int, **variables: str) -> dict[str, str]:
    """Of one process: programs are compiled fast, and once for all processes and tests."""
    flags = f"{FAST} --xla_force_host_platform_device_count={devices}"
    several = {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}", "JAX_NUM_PROCESSES": str(processes)}
    paths = filter(None, [str(whole_packages()), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")])
    found = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "SLURM_", "OMPI_"))}
    return (
        found
        # jaxlib 0.10.1 logs a page for each program from the cache, which would fill a pipe that nobody reads yet
        | {"TF_CPP_MIN_LOG_LEVEL": "3"}
        | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": os.pathsep.join(paths)}
        | {"JAX_COMPILATION_CACHE_DIR": str(cache), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        | (several if processes > 1 else {})
        | variables
    )


def start(
    arguments: list[str], cache: Path, processes: int = 2, devices: int = 2, last: Sequence[str] = ()
) -> list[subprocess.Popen]:
    """Python with these arguments, in each process of a job; with further ones in the last."""
    shared = environment(cache, processes, devices)
    return [
        subprocess.Popen(
            [sys.executable, *arguments, *(last if index == processes - 1 else ())],
            env=shared | ({"JAX_PROCESS_ID": str(index)} if processes > 1 else {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for index in range(processes)
    ]


def finish(job: list[subprocess.Popen], code: int = 0) -> list[str]:
    """What each process of a job that ends in this way has printed."""
    outputs = [process.communicate(timeout=900)[0] for process in job]
    for process, output in zip(job, outputs, strict=True):
        assert process.returncode == code, output[-4000:]
        assert "Traceback" not in output
    return outputs
