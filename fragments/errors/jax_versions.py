"""A warning of versions of JAX that compute wrongly on CPUs or GPUs."""

import importlib.metadata
import sys

from generator.language import splice


@splice("ending_with_messages.start")
def _():
    if importlib.metadata.version("jax").startswith(("0.10.2", "0.11.")):
        print("warning: this jax is wrong on CPUs (jax issue 39103) or GPUs (40633): install another", file=sys.stderr)
