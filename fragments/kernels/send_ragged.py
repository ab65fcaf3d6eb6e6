"""Ragged all-to-all, by the collective of TPUs."""

import jax
from jax import Array

from generator.language.roles import RULES

Slices = tuple[Array, Array, Array]


def send_rows(rows: Array, size: int, away: Slices, home: Slices) -> Array:
    """Sends slices of rows [R, D] to the devices of the expert axis; returns those received, [size, D].

    Rows in between are uninitialized, in the result and in gradients.

    Args:
        away: starts of the slices here, their sizes, and their starts at the receiver: each [devices, slices].
        home: the same for the slices received here, on their way back.
    """

    @jax.custom_gradient
    def send(rows, away, home):
        there = jax.lax.empty((size, rows.shape[1]), rows.dtype)
        there = jax.lax.pcast(there, tuple(jax.typeof(rows).manual_axis_type.varying), to="varying")
        starts, sizes, places, received = (x.ravel() for x in (*away, home[1]))
        y = jax.lax.ragged_all_to_all(rows, there, starts, sizes, places, received, axis_name=RULES["expert"])
        return y, lambda dy: (send_rows(dy, len(rows), home, away), None, None)

    return send(rows, away, home)
