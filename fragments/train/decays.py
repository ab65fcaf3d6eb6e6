"""Weight decay of matrices, not of norms."""

import jax
from flax import nnx

from generator.language import point


def decays(model):
    """Returns a mask of the parameters that decay: matrices, not norms."""
    with point("decays.matrices", model):
        matrices = jax.tree.map(lambda p: p.replace(len(p.axes) > 1), model, is_leaf=lambda p: isinstance(p, nnx.Param))
    return matrices
