"""One process of a multi-process job."""

import os

import jax

from generator.language import excludes
from generator.language.roles import LAUNCHERS, SETTINGS, InputError

excludes("cluster/job")


def join_job() -> None:
    """Joins this process to its job, before anything asks JAX for its devices.

    The SETTINGS say which process it is, or else JAX detects it: Slurm, Open MPI, TPU metadata, Kubernetes.
    """
    settings = {name: os.environ[name] for name in SETTINGS if os.environ.get(name)}
    several = any(os.environ.get(name, alone) != alone for name, alone in LAUNCHERS.items())
    try:
        if settings:
            address, count, index = (settings[name] for name in SETTINGS)
            jax.distributed.initialize(address, int(count), int(index))
        elif several or "," in os.environ.get("TPU_WORKER_HOSTNAMES", ""):
            jax.distributed.initialize()
    except Exception as error:  # each way of detection has its own errors
        launched = [f"{name}={os.environ[name]}" for name in (*SETTINGS, *LAUNCHERS) if os.environ.get(name)]
        raise InputError(f"job {', '.join(launched)}: {error}: set all of {', '.join(SETTINGS)}") from None
