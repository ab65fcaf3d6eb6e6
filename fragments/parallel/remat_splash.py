"""Rematerialisation policies that keep what the Splash kernel gives."""

import jax

# Config.remat -> what the forward pass keeps of a block; the backward pass computes the rest again.
REMAT = {
    "none": jax.checkpoint_policies.everything_saveable,
    "dots": jax.checkpoint_policies.save_from_both_policies(
        jax.checkpoint_policies.dots_with_no_batch_dims_saveable,  # products with parameters
        jax.checkpoint_policies.save_only_these_names("attention"),  # of the kernel
    ),
    "full": jax.checkpoint_policies.nothing_saveable,
}
