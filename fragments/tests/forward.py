"""Logits of a whole batch, by one compiled function for all tests."""

import jax
from jax import Array

from generator.language import point


@jax.jit
def forward(model, tokens, positions=None, segment_ids=None) -> Array:
    with point("forward.logits", model, tokens, positions, segment_ids):
        logits = model(tokens, positions, segment_ids)
    return logits
