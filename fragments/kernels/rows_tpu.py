"""Row-major layout of the residual stream on TPUs, in the forward and the backward pass."""

from jax.experimental.layout import Layout, with_layout_constraint

from generator.language import point, proceed, splice


@splice("shard.constrain", after="sequence_parallel")
def _(x, axes):
    proceed()
    if axes[-1] == "residual":  # otherwise XLA chooses a layout for each pass, and copies residuals between them
        with point("shard.rows", x):
            x = with_layout_constraint(x, Layout(tuple(range(x.ndim))))
