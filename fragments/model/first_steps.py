"""First steps of state spaces.

Source: Gu and Dao 2023, arXiv 2312.00752, section 3.6.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array


def first_step_bias(size: int, rngs: nnx.Rngs) -> Array:
    """Draws biases [size] whose softplus, a step, is log-uniform from 0.001 to 0.1."""
    step = jnp.exp(jax.random.uniform(rngs.params(), (size,), minval=jnp.log(0.001), maxval=jnp.log(0.1)))
    return jnp.log(jnp.expm1(step))
