"""Warm-up of indexers: tokens attend to all keys, and indexers alone learn, to rank these as attention weighs them.

Source: DeepSeek-AI 2025, arXiv 2512.02556, section 2.1.1 and equation 3.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from generator.language import layers, requires, splice
from generator.language.roles import Decoder, loss, named_arrays

requires("indexer")


def outside_indexers(f: Callable[[Array], Array], model: Decoder) -> Decoder:
    """Applies f to all parameters but those of indexers."""
    arrays = {name: x if ".indexer." in name else f(x) for name, x in named_arrays(model).items()}
    return jax.tree.unflatten(jax.tree.structure(model), arrays.values())


@splice("attend_selected.selected")
def _():
    pass


@splice("train_step.gradient")
def _(gradient, config):
    gradient = jax.grad(
        lambda model, batch: loss(outside_indexers(jax.lax.stop_gradient, model), batch, config), has_aux=True
    )


@splice("train_step.updates", after="balance")
def _(updates):
    # what has no gradient would decay
    updates = outside_indexers(jnp.zeros_like, updates)


@splice("flops.selected_keys")
def _(keys, config):
    keys = layers.count * config.sequence_length


@splice("flops.parameters")
def _(parameters):
    # forward alone; indexers are small
    parameters *= 1 / 3


@splice("attend_slowly.selected", optional=True)
def _(order, ranks):
    order = np.argsort(-ranks)


@splice("test_train.gradient", optional=True)
def _(gradient):
    gradient = outside_indexers(jnp.zeros_like, gradient)


@splice("test_train.by_heart", optional=True)
def _():
    pytest.skip("indexers alone learn no text")
