"""One process of a multi-process job."""

import os

import jax

from generator.language import excludes
from generator.language.roles import InputError

excludes("cluster/job")

SETTINGS = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
# variable of a launcher -> its value for a single process
LAUNCHERS = {"SLURM_NTASKS": "1", "OMPI_COMM_WORLD_SIZE": "1", "MEGASCALE_NUM_SLICES": "1", "JOB_COMPLETION_INDEX": "0"}


def join_job() -> None:
    """Joins this process to its job, before anything asks JAX for its devices.

    The SETTINGS say which process it is, or else JAX detects it: Slurm, Open MPI, TPU metadata, Kubernetes.
    """
    given = {name: os.environ[name] for name in SETTINGS if os.environ.get(name)}
    several = any(os.environ.get(name, alone) != alone for name, alone in LAUNCHERS.items())
    try:
        if given:
            address, count, index = (given[name] for name in SETTINGS)
            jax.distributed.initialize(address, int(count), int(index))
        elif several or "," in os.environ.get("TPU_WORKER_HOSTNAMES", ""):
            jax.distributed.initialize()
    except (KeyError, ValueError) as error:
        problem = f"{', '.join(map('='.join, given.items()))}: {error}: set all of {', '.join(SETTINGS)}, or none"
        raise InputError(problem) from None
