"""Rematerialisation policies that keep what cuDNN's attention gives."""

import jax

# Config.remat -> what the forward pass keeps of a block; the backward pass computes the rest again.
REMAT = {
    "none": jax.checkpoint_policies.everything_saveable,
    "dots": jax.checkpoint_policies.save_from_both_policies(
        jax.checkpoint_policies.dots_with_no_batch_dims_saveable,  # products with parameters
        # what cuDNN's attention gives: it runs once in each direction
        lambda primitive, *_, **__: primitive.name == "dot_product_attention_fwd_wrapper",
    ),
    "full": jax.checkpoint_policies.nothing_saveable,
}
