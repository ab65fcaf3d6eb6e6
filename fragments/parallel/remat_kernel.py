"""Rematerialisation policies that keep what an attention kernel gives."""

import jax

from generator.marks import setting

# Config.remat -> what the forward pass keeps of a block; the backward pass computes the rest again.
REMAT = {
    "none": jax.checkpoint_policies.everything_saveable,
    "dots": jax.checkpoint_policies.save_from_both_policies(
        jax.checkpoint_policies.dots_with_no_batch_dims_saveable,  # products with parameters
        # what the attention kernel gives: it runs once in each direction
        jax.checkpoint_policies.save_only_these_names("attention")
        if setting("attention_kernel") == "splash"
        else lambda primitive, *_, **__: primitive.name == "dot_product_attention_fwd_wrapper",
    ),
    "full": jax.checkpoint_policies.nothing_saveable,
}
