"""One process of a multi-process job."""

import os

import jax

from generator.language import excludes

excludes("cluster/job")

# variable of a launcher -> its value for a single process
LAUNCHERS = {"SLURM_NTASKS": "1", "OMPI_COMM_WORLD_SIZE": "1", "MEGASCALE_NUM_SLICES": "1", "JOB_COMPLETION_INDEX": "0"}


def join_job() -> None:
    """Joins this process to its job, before anything asks JAX for its devices.

    JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID say which process it is, or else JAX detects
    it: Slurm, Open MPI, TPU metadata, Kubernetes.
    """
    several = any(os.environ.get(name, alone) != alone for name, alone in LAUNCHERS.items())
    if count := os.environ.get("JAX_NUM_PROCESSES"):
        jax.distributed.initialize(num_processes=int(count), process_id=int(os.environ["JAX_PROCESS_ID"]))
    elif several or "," in os.environ.get("TPU_WORKER_HOSTNAMES", ""):
        jax.distributed.initialize()
