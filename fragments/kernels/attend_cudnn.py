"""Flash attention by cuDNN.

Source: Dao et al. 2022, arXiv 2205.14135 (flash attention).
"""

import jax
import jax.numpy as jnp
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from generator.language import point, threaded


def attend(q: Array, k: Array, v: Array, segment_ids: Array | None = threaded()) -> Array:
    """Computes causal attention in each segment: q [B, T, N, H]; k, v [B, T, K, H]; segment_ids [B, T] -> [B, T, N, H].

    cuDNN's flash kernel takes only 16-bit numbers; others, and other platforms, go to XLA. With segment_ids None, each
    row is one segment.
    """
    q, k, v = checkpoint_name((q, k, v), "attention")
    mesh = jax.sharding.get_abstract_mesh()
    platform = jax.default_backend() if mesh.empty else mesh.abstract_device.platform
    cudnn = platform == "gpu" and q.dtype in (jnp.bfloat16, jnp.float16)
    options = {"is_causal": True, "implementation": "cudnn" if cudnn else "xla"}
    point("attend_cudnn.options", options, q)
    with point("attend_cudnn.run", q, k, v, segment_ids, platform, options):
        if segment_ids is not None:  # cuDNN has none, so they become a mask [B, 1, T, T]
            options["mask"] = segment_ids[:, None, :, None] == segment_ids[:, None, None, :]
        context = jax.nn.dot_product_attention(q, k, v, **options)
    return context
