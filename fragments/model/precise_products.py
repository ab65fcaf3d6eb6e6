"""Products of fp32 numbers in fp32: JAX traces both passes of a custom gradient after the block that asks for it."""

import jax.numpy as jnp

from generator.language import proceed, requires, setting, splice

requires("experts")


@splice("product.result")
def _(equation, x, kernel, dtype, y):
    if setting("products_in_fp32"):
        proceed()
    else:
        if x.dtype == kernel.dtype:
            # its own gradient is in that dtype, and has the precision that this call asks for
            y = jnp.einsum(equation, x, kernel, preferred_element_type=dtype)
        else:
            proceed()
