"""A linear recurrence over tokens, of all tokens at once.

Source: Blelloch 1990, "Prefix Sums and Their Applications", section 1.4.1.
"""

import jax
from jax import Array


def linear_recurrence(x: Array, decay: Array, state: Array) -> Array:
    """Computes the state after each token, decay * state + x: x, decay [B, T, ...], state [B, ...] -> [B, T, ...]."""

    def after_both(earlier, later):
        (kept, written), (kept_later, written_later) = earlier, later
        return kept * kept_later, kept_later * written + written_later

    kept, states = jax.lax.associative_scan(after_both, (decay, x), axis=1)
    return states + kept * state[:, None]
