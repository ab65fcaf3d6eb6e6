"""Rematerialisation policies that keep what cuDNN's attention gives."""

import jax


def save_dots(primitive, *arguments, **parameters) -> bool:
    """Keeps products with parameters, and what cuDNN's attention gives: it runs once in each direction."""
    dots = jax.checkpoint_policies.dots_with_no_batch_dims_saveable(primitive, *arguments, **parameters)
    return dots or primitive.name == "dot_product_attention_fwd_wrapper"


# Config.remat -> what the forward pass keeps of a block; the backward pass computes the rest again.
REMAT = {
    "none": jax.checkpoint_policies.everything_saveable,
    "dots": save_dots,
    "full": jax.checkpoint_policies.nothing_saveable,
}
