"""One process of a multi-process job."""

import os
import socket
import time
import warnings

import jax

from generator.language.roles import LAUNCHERS, SETTINGS, InputError

# seconds that a process waits for the others to start, for heartbeats, and for the others to end; JAX then ends
# a process that waits for one that is gone
TIMEOUTS = dict(initialization_timeout=300, heartbeat_timeout_seconds=60, shutdown_timeout_seconds=60)


def await_coordinator(host: str, port: int) -> None:
    """Waits until process 0 can be reached, else raises ConnectionError: JAX would abort with a stack trace of C++."""
    end = time.monotonic() + TIMEOUTS["initialization_timeout"]
    while True:
        try:
            socket.create_connection((host.strip("[]"), port), timeout=5).close()  # [::1] of IPv6
            return
        except OSError as error:
            if time.monotonic() > end:
                raise ConnectionError(f"JAX_COORDINATOR_ADDRESS {host}:{port} cannot be reached: {error}") from None
        time.sleep(0.5)


def join_job() -> None:
    """Joins this process to its job, before anything asks JAX for its devices.

    The SETTINGS say which process it is, or else JAX detects it: Slurm, Open MPI, TPU metadata, Kubernetes.
    """
    settings = {name: os.environ[name] for name in SETTINGS if os.environ.get(name)}
    if missing := [name for name in SETTINGS if settings and name not in settings]:
        raise InputError(f"{', '.join(missing)} missing beside {', '.join(settings)}: set all three, or none")
    if settings:
        address, count, index = settings.values()
        try:
            host, port = address.rsplit(":", 1)
            if 0 < int(index) < int(count):
                await_coordinator(host, int(port))
            where = dict(coordinator_address=address, cluster_detection_method="deactivate")
            jax.distributed.initialize(num_processes=int(count), process_id=int(index), **where, **TIMEOUTS)
        except ValueError as error:
            advice = "HOST:PORT of process 0, the number of processes, and which of them this is, from 0"
            raise InputError(f"{', '.join(map('='.join, settings.items()))}: {error}: give {advice}") from None
        return
    launched = [f"{name}={os.environ[name]}" for name, one in LAUNCHERS.items() if os.environ.get(name, one) != one]
    launched += ["TPU_WORKER_HOSTNAMES"] if "," in os.environ.get("TPU_WORKER_HOSTNAMES", "") else []
    if not launched and {"SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"} & set(os.environ):
        return  # a single process; JAX would give it one GPU
    one_a_node = os.environ.get("SLURM_STEP_NUM_NODES") == os.environ.get("SLURM_NTASKS", "")
    all_gpus = {"local_device_ids": []} if one_a_node else {}  # by default JAX gives a Slurm process one GPU
    try:
        with warnings.catch_warnings(action="ignore"):  # kubernetes is not installed
            jax.distributed.initialize(**all_gpus, **TIMEOUTS)
    except Exception as error:  # each way of detection has its own errors
        if launched:
            raise InputError(
                f"{', '.join(launched)} announces several processes, which JAX does not find: {error} "
                f"Start them by srun or mpirun, or set {', '.join(SETTINGS)}"
            ) from None
