"""One process of a job of many."""

import os

import jax


def join_job() -> None:
    """Makes this process one of its job's, before anything asks JAX for its devices."""
    if int(os.environ.get("SLURM_NTASKS", 1)) > 1 or "," in os.environ.get("TPU_WORKER_HOSTNAMES", ""):
        jax.distributed.initialize()
