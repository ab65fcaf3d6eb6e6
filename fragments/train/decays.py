"""Which parameters decay: matrices, and no norms."""

import jax
from flax import nnx

from generator.language import point


def decays(model):
    """Which parameters decay: matrices, and no norms."""
    with point("decays.matrices", model):
        matrices = jax.tree.map(lambda p: p.replace(len(p.axes) > 1), model, is_leaf=lambda p: isinstance(p, nnx.Param))
    return matrices
