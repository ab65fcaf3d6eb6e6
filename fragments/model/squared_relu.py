"""Squared ReLU in a feed-forward without a gate.

Source: So et al. 2021, arXiv 2109.08668, section 3.1.
"""

import jax
import jax.numpy as jnp

from generator.language import splice


@splice("FeedForward.activation")
def _(up, h):
    h = jnp.square(jax.nn.relu(up))
