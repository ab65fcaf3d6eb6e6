"""One process of a job of many."""

import os

import jax
import numpy as np
from jax.experimental import multihost_utils


def join_job() -> None:
    """Makes this process one of its job's, before anything asks JAX for its devices."""
    if int(os.environ.get("SLURM_NTASKS", 1)) > 1 or "," in os.environ.get("TPU_WORKER_HOSTNAMES", ""):
        jax.distributed.initialize()


def agree(value: int) -> int:
    """The greatest value of all processes, each of which waits here for the others."""
    return int(multihost_utils.process_allgather(np.int32(value)).max())
