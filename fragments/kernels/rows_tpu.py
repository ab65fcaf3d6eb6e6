"""Row-major layout of the residual stream on TPUs, in the forward and the backward pass."""

from jax.experimental.layout import Layout, with_layout_constraint

from generator.language import splice


@splice("shard.laid_out")
def _(x, axes):
    if axes[-1] == "residual":  # otherwise XLA chooses a layout for each pass, and copies residuals between them
        x = with_layout_constraint(x, Layout(tuple(range(x.ndim))))
