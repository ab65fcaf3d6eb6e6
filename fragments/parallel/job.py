"""One process of a job of many."""

import os

import jax

from generator.language import excludes

excludes("cluster/job")

# what launchers say -> what it is for a process that is alone
LAUNCHERS = {"SLURM_NTASKS": "1", "OMPI_COMM_WORLD_SIZE": "1", "MEGASCALE_NUM_SLICES": "1", "JOB_COMPLETION_INDEX": "0"}


def join_job() -> None:
    """Makes this process one of its job's, before anything asks JAX for its devices.

    Which one, JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID say, or else what JAX finds: Slurm,
    Open MPI, TPU metadata, Kubernetes.
    """
    several = any(os.environ.get(name, alone) != alone for name, alone in LAUNCHERS.items())
    if count := os.environ.get("JAX_NUM_PROCESSES"):
        jax.distributed.initialize(num_processes=int(count), process_id=int(os.environ["JAX_PROCESS_ID"]))
    elif several or "," in os.environ.get("TPU_WORKER_HOSTNAMES", ""):
        jax.distributed.initialize()
