"""Splash attention: the sparse flash attention kernel for TPUs in Pallas.

Source: Dao et al. 2022, arXiv 2205.14135 (flash attention).
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.pallas.ops.tpu import splash_attention as splash
from jax.sharding import PartitionSpec

from generator.language import point, threaded
from generator.language.roles import RULES


def attend(q: Array, k: Array, v: Array, segment_ids: Array | None = threaded()) -> Array:
    """Computes causal attention in each segment: q [B, T, N, H]; k, v [B, T, K, H]; segment_ids [B, T] -> [B, T, N, H].

    Each device runs the Splash kernel on its own rows and heads. With segment_ids None, each row is one segment.
    """
    if segment_ids is None:
        segment_ids = jnp.ones(q.shape[:2], jnp.int32)
    mesh = jax.sharding.get_abstract_mesh()  # of devices to compile for, which need not be those of this machine
    platform = jax.default_backend() if mesh.empty else mesh.abstract_device.platform

    def local(q: Array, k: Array, v: Array, segment_ids: Array) -> Array:
        with point("attend_splash.local", q, k, v, segment_ids):
            context = attend_local(q, k, v, segment_ids, interpret=platform != "tpu")
        return context

    if mesh.empty:
        return local(q, k, v, segment_ids)
    rows = PartitionSpec(RULES["batch"], RULES["sequence"])
    heads = PartitionSpec(RULES["batch"], RULES["sequence"], RULES["heads"])
    # check_vma: the kernel does not say over which mesh axes its results vary
    spread = jax.shard_map(local, in_specs=(heads, heads, heads, rows), out_specs=heads, check_vma=False)
    return spread(q, k, v, segment_ids)


def attend_local(q: Array, k: Array, v: Array, segment_ids: Array, interpret: bool) -> Array:
    """Computes `attend` on one device with the Splash kernel, which skips blocks in the future of all their queries.

    A fused backward kernel computes all three gradients. For REMAT, q, k and v are named "attention", the output and
    its logsumexp "context": if they are saved, the backward pass repeats neither the rotation nor the forward kernel.
    """
    T, N, H = q.shape[1:]
    with point("attend_splash.size", q, k, T, H, N):  # queries or keys in a block, whole lanes, with the least padding
        size = (1024, 768, 512)[np.argmin([-T % 1024, -T % 768, -T % 512])] if T > 512 else -(T // -128) * 128
    padding = -T % size  # which lies in the future of all tokens
    k = (k.astype(jnp.float32) * H**-0.5).astype(k.dtype)  # there are fewer keys than queries
    q, k, v = (jnp.pad(x, ((0, 0), (0, padding), (0, 0), (0, 0))).swapaxes(1, 2) for x in (q, k, v))
    q, k, v = checkpoint_name((q, k, v), "attention")
    segment_ids = jnp.pad(segment_ids, ((0, 0), (0, padding)))
    segments = splash.SegmentIds(segment_ids, segment_ids)  # of queries and of keys
    # the backward kernel writes a partial gradient of q for each block of keys: larger blocks for longer sequences
    # waste little work above the diagonal, and fit into the 16 MiB of vector memory of a v4
    keys = size * math.gcd((T + padding) // size, max(1, min(256 // H, math.ceil(T / 8192))))
    compute = size if size <= 512 else size // 2  # keys at a time
    # of queries, keys, and keys at a time: in the forward, then in the backward kernel
    blocks = splash.BlockSizes(size, size, compute, size, keys, compute, use_fused_bwd_kernel=True)
    options = {"block_sizes": blocks, "residual_checkpoint_name": "context", "interpret": interpret}
    point("attend_splash.options", options, H, N, T)
    with point("attend_splash.causal", T, padding, H, N):
        mask = splash.CausalMask((T + padding, T + padding))
    point("attend_splash.mask", mask, H, N, T)
    kernel = splash.make_splash_mha_single_device(splash.MultiHeadMask([mask] * N), **options)
    point("attend_splash.kernel", kernel, segments, H, N, T)
    with point("attend_splash.run", kernel, q, k, v, segments, H, N, T):
        context = jax.vmap(kernel)(q, k, v, segments)  # [B, N, T, H]
    return context.swapaxes(1, 2)[:, :T]
