"""What processes that sample together do with their rows and numbers, in one process."""

import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from generator.language import requires
from generator.language.roles import evaluate_rows

requires("rollouts/own_rows")


def test_sums_of_an_evaluation_are_exact(monkeypatch):
    """Over two processes with the same numbers, where JAX rounds what it gathers to 32 bits."""

    def gather(x, tiled=False):
        both = [np.asarray(jnp.asarray(x))] * 2
        return np.concatenate(both) if tiled else np.stack(both)

    monkeypatch.setattr(multihost_utils, "process_allgather", gather)
    sums = {"targets": 2**24 + 1, "objective": {"reward": 0.1}}
    evaluate = evaluate_rows(lambda model, batch: sums, [0])
    assert evaluate(None, {"prompt": np.zeros((1, 1), np.int32)}) == {"targets": 2**25 + 2, "objective": {"reward": 0.2}}
