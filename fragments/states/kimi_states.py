"""The state of Kimi Delta Attention, where it differs from that of a gated delta net: each channel decays by itself.

Source: Kimi Team 2025, arXiv 2510.26692, equation 1.
"""

import jax.numpy as jnp

from generator.language import requires, splice

requires("states/delta_states", "kimi_delta_attention")


@splice("empty_states.sizes")
def _(config, K, N, H, V):
    K = config.delta_heads
    N = config.delta_heads
    H = config.delta_head_size
    V = config.delta_head_size


@splice("delta_rule_after.decay")
def _(decay, is_token):
    decay = jnp.where(is_token[..., None], decay, 0)


@splice("delta_rule_after.decayed")
def _(memory, decay):
    memory = jnp.exp(decay)[..., None] * memory
