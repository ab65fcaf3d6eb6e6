"""Rows to other devices, as many as there are for each, by the collective that TPUs have for that."""

import jax
from jax import Array

from generator.language.roles import RULES

Slices = tuple[Array, Array, Array]


def send_rows(rows: Array, size: int, away: Slices, home: Slices) -> Array:
    """Slices of rows [R, D] to the devices that experts lie over, and what these send here, [size, D].

    What nobody sends is anything, in what comes as in its gradient.

    Args:
        away: where slices start here, how many rows each has, and where they start there: [devices, slices of each].
        home: the same of the slices that come here, as their way back.
    """

    @jax.custom_gradient
    def send(rows, away, home):
        there = jax.lax.empty((size, rows.shape[1]), rows.dtype)
        there = jax.lax.pcast(there, tuple(jax.typeof(rows).manual_axis_type.varying), to="varying")
        starts, sizes, places, received = (x.ravel() for x in (*away, home[1]))
        y = jax.lax.ragged_all_to_all(rows, there, starts, sizes, places, received, axis_name=RULES["expert"])
        return y, lambda dy: (send_rows(dy, len(rows), home, away), None, None)

    return send(rows, away, home)
