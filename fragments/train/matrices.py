"""The dtype in which gradients of matrices are summed."""

import jax
from flax import nnx

from generator.language import excludes, point
from generator.language.roles import Decoder

excludes("experts")


def with_matrices_in(dtype: str, model: Decoder) -> Decoder:
    """Casts matrices to the dtype in which their gradients are summed; other parameters are used in fp32."""

    with point("with_matrices_in.cast", dtype):

        def cast(p):
            return p if len(p.axes) < 2 else p.replace(p.get_value().astype(dtype))

    return jax.tree.map(cast, model, is_leaf=lambda x: isinstance(x, nnx.Param))
