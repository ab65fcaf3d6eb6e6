"""Rematerialisation policies."""

import jax

# Config.remat -> what the forward pass keeps of a block; the backward pass computes the rest again.
REMAT = {
    "none": jax.checkpoint_policies.everything_saveable,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,  # products with parameters
    "full": jax.checkpoint_policies.nothing_saveable,
}
