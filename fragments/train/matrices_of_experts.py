"""The dtype in which gradients of matrices are summed, with experts, whose router computes in fp32."""

import jax
from flax import nnx

from generator.language import point, requires
from generator.language.roles import Decoder

requires("experts")


def with_matrices_in(dtype: str, model: Decoder) -> Decoder:
    """Casts matrices to the dtype in which their gradients are summed, except those used in fp32."""

    def cast(path, p):
        name = jax.tree_util.keystr(path)
        is_used_in_fp32 = len(p.axes) < 2 or "router" in name
        point("with_matrices_in.fp32", p, name, is_used_in_fp32)
        return p if is_used_in_fp32 else p.replace(p.get_value().astype(dtype))

    return jax.tree_util.tree_map_with_path(cast, model, is_leaf=lambda x: isinstance(x, nnx.Param))
