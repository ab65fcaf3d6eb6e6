"""Splash attention: the sparse flash attention kernel for TPUs in Pallas.

Source: Dao et al. 2022, arXiv 2205.14135 (flash attention).
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.pallas.ops.tpu import splash_attention as splash
from jax.sharding import PartitionSpec

from generator.language import point, threaded
from generator.language.roles import RULES


def attend(q: Array, k: Array, v: Array, segment_ids: Array | None = threaded()) -> Array:
    """Causal attention inside each segment. q [B, T, N, H]; k, v [B, T, K, H]; segment_ids [B, T]. -> [B, T, N, H]

    Each device runs the Splash kernel on its own rows and heads. segment_ids None: each row is one segment.
    """
    if segment_ids is None:
        segment_ids = jnp.ones(q.shape[:2], jnp.int32)
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return attend_local(q, k, v, segment_ids, interpret=jax.default_backend() != "tpu")

    def local(q: Array, k: Array, v: Array, segment_ids: Array) -> Array:
        # compiled for the mesh's devices, which need not be those of this machine
        return attend_local(q, k, v, segment_ids, interpret=mesh.abstract_device.platform != "tpu")

    rows = PartitionSpec(RULES["batch"], RULES["sequence"])
    heads = PartitionSpec(RULES["batch"], RULES["sequence"], RULES["heads"])
    # check_vma: the kernel does not say over which mesh axes its results vary
    return jax.shard_map(local, in_specs=(heads, heads, heads, rows), out_specs=heads, check_vma=False)(
        q, k, v, segment_ids
    )


def attend_local(q: Array, k: Array, v: Array, segment_ids: Array, interpret: bool) -> Array:
    """`attend` on one device, by the Splash kernel: blocks in the future of all their queries are passed over.

    One backward kernel gives all three gradients. What it reads (q, k, v, the output and its logsumexp) is named
    "attention", for REMAT to keep: then the backward pass runs neither the rotation nor the forward kernel again.
    """
    T, N, H = q.shape[1:]
    padding = -T % 128  # the kernel wants whole lanes; what is added lies in the future of all tokens
    # scaled are the keys, which are fewer than the queries
    q, k, v = (jnp.pad(x, ((0, 0), (0, padding), (0, 0), (0, 0))).swapaxes(1, 2) for x in (q, k * H**-0.5, v))
    q, k, v = checkpoint_name((q, k, v), "attention")
    segment_ids = jnp.pad(segment_ids, ((0, 0), (0, padding)))
    size = math.gcd(T + padding, 1024)  # queries or keys that the kernel takes at a time
    # the backward kernel leaves a summand of q's gradient for each block of keys: larger ones in long sequences, where
    # what they compute above the diagonal is little, as far as the 16 MiB of vector memory of a v4 go
    keys = math.gcd(T + padding, 1024 * max(1, min(256 // H, math.ceil(T / 8192))))
    forward = {"block_q": size, "block_kv": size, "block_kv_compute": min(size, 512)}
    backward = {"block_q_dkv": size, "block_kv_dkv": keys, "block_kv_dkv_compute": min(size, 512)}
    make_kernel = functools.partial(
        splash.make_splash_mha,
        head_shards=1,
        q_seq_shards=1,
        block_sizes=splash.BlockSizes(**forward, **backward, use_fused_bwd_kernel=True),
        residual_checkpoint_name="attention",
        interpret=interpret,
    )
    point("attend_splash.make", make_kernel)
    with point("attend_splash.causal", T, padding):
        mask = splash.CausalMask((T + padding, T + padding))
    point("attend_splash.mask", mask)
    kernel = make_kernel(splash.MultiHeadMask([mask] * N))
    with point("attend_splash.run", kernel, q, k, v, segment_ids):
        context = jax.vmap(kernel)(q, k, v, splash.SegmentIds(segment_ids, segment_ids))  # [B, N, T, H]
    return context.swapaxes(1, 2)[:, :T]
