"""What processes that sample together do with their rows and numbers, in one process."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from generator.language import requires
from generator.language.roles import InputError, evaluate_rows, make_mesh, own_rows

requires("rollouts/own_rows")


def test_sums_of_an_evaluation_are_exact(monkeypatch):
    """Over two processes with the same numbers, where JAX rounds what it gathers to 32 bits."""

    def gather(x, tiled=False):
        both = [np.asarray(jnp.asarray(x))] * 2
        return np.concatenate(both) if tiled else np.stack(both)

    monkeypatch.setattr(multihost_utils, "process_allgather", gather)
    sums = {"targets": 2**24 + 1, "objective": {"reward": 0.1}}
    evaluate = evaluate_rows(lambda model, batch: sums, [0])
    assert evaluate(None, {"prompt": np.zeros((1, 1), np.int32)}) == {
        "targets": 2**25 + 2,
        "objective": {"reward": 0.2},
    }


def test_one_process_takes_groups_of_several_batches():
    """As in a package without the part; nothing else divides a rollout there."""
    sharding = NamedSharding(make_mesh(1, 1, 1), PartitionSpec())
    assert own_rows(sharding, (4, 8), group=8, batches=2) == [0, 1, 2, 3]
    with pytest.raises(InputError, match="--group-size 8: must divide the sequences of a batch that a process holds"):
        own_rows(sharding, (4, 8), group=8, batches=1)
