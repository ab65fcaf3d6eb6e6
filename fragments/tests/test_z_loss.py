"""The z-loss against its definition, in fp64."""

import dataclasses

import jax
import numpy as np

from generator.language import requires
from generator.language.roles import SMALL, forward, loss, random_batch, state_for

requires("z_loss")

loss_of = jax.jit(loss, static_argnums=2)


def test_z_loss_is_added_and_not_reported():
    batch, config = random_batch(SMALL), dataclasses.replace(SMALL, z_loss=0.1)
    model = state_for(config).model
    total, metrics = loss_of(model, batch, config)
    without, metrics_without = loss_of(model, batch, SMALL)
    logits = np.array(forward(model, batch["tokens"], batch["positions"], batch["segment_ids"]), np.float64)
    z = (np.log(np.exp(logits).sum(-1)) ** 2 * batch["weights"]).sum()
    np.testing.assert_allclose(total - without, 0.1 * z, rtol=1e-4)
    np.testing.assert_allclose(metrics["cross_entropy"], metrics_without["cross_entropy"], rtol=1e-6)
