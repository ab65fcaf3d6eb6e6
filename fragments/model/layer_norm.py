"""Layer norm: the root-mean-square norm of centred values.

Source: Ba et al. 2016, arXiv 1607.06450, section 3.
"""

import jax.numpy as jnp

from generator.language import requires, splice

requires("rms_norm")


@splice("Norm.centred")
def _(y):
    y = y - jnp.mean(y, axis=-1, keepdims=True)


@splice("hf.norm_epsilon")
def _():
    yield "layer_norm_eps", "norm_epsilon"
