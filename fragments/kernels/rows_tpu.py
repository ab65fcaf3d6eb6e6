"""Layout in memory of the residual stream on TPUs: row by row, in the forward and the backward pass."""

from jax.experimental.layout import Layout, with_layout_constraint

from generator.language import splice


@splice("shard.laid_out")
def _(x, axes):
    if axes[-1] == "residual":  # else XLA lays out each pass by itself, and copies what one keeps for the other
        x = with_layout_constraint(x, Layout(tuple(range(x.ndim))))
