"""Attention of packed documents on GPUs: flash kernels in Pallas that pass over the keys of other documents.

Source: Dao 2023, arXiv 2307.08691, section 3 (FlashAttention-2).
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jax.sharding import PartitionSpec

from generator.language import point, requires, splice
from generator.language.roles import RULES, InputError

requires("attend_cudnn")

BLOCK = 128  # queries of a program, or keys in `key_value_kernel`; fewer where heads are wide
STEP = 32  # keys or queries that a program for gradients, which has more in registers, reads at a time
HIDDEN = -1e30  # score of a key out of sight


def attend_packed(q: Array, k: Array, v: Array, segment_ids: Array, platform: str) -> Array:
    """Computes `attend` where each document is one run of equal segment_ids [B, T], in memory in proportion to T.

    Each device runs the kernels on its own rows and heads. They are interpreted on all platforms but GPUs.
    """

    def local(q: Array, k: Array, v: Array, segment_ids: Array) -> Array:
        T, H = q.shape[1], q.shape[3]
        # to whole blocks and to powers of two, which Triton needs; the padding lies in the future of all tokens
        padding = (0, 0), (0, -T % BLOCK), (0, 0), (0, max(16, pl.next_power_of_2(H)) - H)
        q, k, v = (jnp.pad(x, padding) for x in (q, k, v))
        segment_ids = jnp.pad(segment_ids, padding[:2], mode="edge")
        t = jnp.arange(segment_ids.shape[1])
        starts = jnp.where(segment_ids != jnp.roll(segment_ids, 1, axis=1), t, 0)
        first = jax.lax.cummax(starts, axis=1)  # [B, T]: the first key that a query sees
        point("attend_packed.first", first, t, H, T)
        return flash(q, k, v, first, H**-0.5, platform != "gpu")[:, :T, :, :H]

    if jax.sharding.get_abstract_mesh().empty:
        return local(q, k, v, segment_ids)
    rows, heads = PartitionSpec(RULES["batch"]), PartitionSpec(RULES["batch"], None, RULES["heads"])
    # check_vma: the kernels do not say over which mesh axes their results vary
    spread = jax.shard_map(local, in_specs=(heads, heads, heads, rows), out_specs=heads, check_vma=False)
    return spread(q, k, v, segment_ids)


def flash(q: Array, k: Array, v: Array, first: Array, scale: float, interpret: bool) -> Array:
    """Attends from each query t of q [B, T, N, H] to the keys first[t] to t of k, v [B, T, K, H]: [B, T, N, H].

    first [B, T] never falls along a row, so that a block of queries sees one range of keys, and the reverse. The
    inputs are named "attention" for REMAT, the output and its logsumexp "context".
    """
    B, T, N, H = q.shape
    if q.size >= 2**31:
        raise InputError(f"attention of {B} x {T:,} tokens on a device, beyond 32-bit places: give it fewer rows")
    K = k.shape[2]
    G = N // K  # query heads of a key head
    size = min(BLOCK, 2**15 // (H * q.dtype.itemsize))  # so that a program fits into shared memory
    # the part of an array that a program sees; its place is (row, head, block)
    block = pl.BlockSpec((None, size, None, H), lambda b, n, i: (b, i, n, 0))
    keys = pl.BlockSpec((None, T, None, H), lambda b, n, i: (b, 0, n // G, 0))  # all of a head
    queries = pl.BlockSpec((None, T, G, H), lambda b, n, i: (b, 0, n, 0))  # all of the heads of a key head
    block_numbers = pl.BlockSpec((None, None, size), lambda b, n, i: (b, n, i))
    numbers = pl.BlockSpec((None, G, T), lambda b, n, i: (b, n, 0))
    block_first = pl.BlockSpec((None, size), lambda b, n, i: (b, i))
    row = pl.BlockSpec((None, T), lambda b, n, i: (b, 0))
    row_blocks = pl.BlockSpec((None, T // size), lambda b, n, i: (b, 0))

    def launch(kernel: Callable, heads: int, outputs: list, *inputs: tuple) -> list[Array]:
        """Runs a kernel for all places. Inputs and outputs: an array, or one that is like it, and the part to see."""
        shapes, out_specs = zip(*outputs, strict=True)
        arrays, in_specs = zip(*inputs, strict=True)
        return pl.pallas_call(
            functools.partial(kernel, scale=scale),
            grid=(B, heads, T // size),
            in_specs=in_specs,
            out_specs=out_specs,
            out_shape=shapes,
            compiler_params=triton.CompilerParams(num_warps=8 if H > 64 else 4, num_stages=2),
            interpret=interpret,
        )(*arrays)

    @jax.custom_gradient
    def run(q: Array, k: Array, v: Array, first: Array) -> Array:
        inputs = (first, block_first), (q, block), (k, keys), (v, keys)
        total = jax.ShapeDtypeStruct((B, N, T), jnp.float32)
        outputs = launch(context_kernel, N, [(q, block), (total, block_numbers)], *inputs)
        context, total = checkpoint_name(outputs, "context")

        def backward(dcontext: Array) -> tuple:
            delta = jnp.einsum("BTNH,BTNH->BNT", context, dcontext, preferred_element_type=jnp.float32)
            more = (dcontext, block), (total, block_numbers), (delta, block_numbers)
            (dq,) = launch(query_kernel, N, [(q, block)], *inputs, *more)
            last = functools.partial(jnp.searchsorted, side="right")
            ends = jax.vmap(last, (0, None))(
                first, jnp.arange(size - 1, T, size)
            )  # of those who see a block's last key
            inputs_of_keys = (first, row), (ends, row_blocks), (q, queries), (k, block), (v, block)
            more = (dcontext, queries), (total, numbers), (delta, numbers)
            dk, dv = launch(key_value_kernel, K, [(k, block), (v, block)], *inputs_of_keys, *more)
            return dq, dk, dv, None

        return context, backward

    return run(q, k, v, first)


def dot(x: Array, y: Array, x_axis: int, y_axis: int) -> Array:
    """Multiplies two matrices and sums over an axis of each, in fp32."""
    return jax.lax.dot_general(x, y, (((x_axis,), (y_axis,)), ((), ())), preferred_element_type=jnp.float32)


def visible_scores(q: Array, k: Array, first: Array, queries: Array, keys: Array, scale: float) -> Array:
    """Returns the scores of queries and keys, whose places are given: [Q, H], [S, H] -> [Q, S]."""
    seen = (keys >= first[:, None]) & (keys <= queries[:, None])
    return jnp.where(seen, scale * dot(q, k, 1, 1), HIDDEN)


def context_kernel(first_ref, q_ref, k_ref, v_ref, out_ref, total_ref, *, scale):
    """Computes the context of a block of queries, and the logsumexp of their scores."""
    size = q_ref.shape[0]
    start = size * pl.program_id(2)
    read = size // 2  # keys that it reads at a time
    queries = start + jnp.arange(size)
    first, q = first_ref[...], q_ref[...]

    def add(step, sums):
        highest, total, context = sums
        rows = pl.ds(step * read, read)
        scores = visible_scores(q, k_ref[rows], first, queries, step * read + jnp.arange(read), scale)
        higher = jnp.maximum(highest, scores.max(axis=1))
        weights, rest = jnp.exp(scores - higher[:, None]), jnp.exp(highest - higher)
        context = context * rest[:, None] + dot(weights.astype(v_ref.dtype), v_ref[rows], 1, 0)
        return higher, total * rest + weights.sum(axis=1), context

    sums = jnp.full(size, HIDDEN), jnp.zeros(size), jnp.zeros(q.shape, jnp.float32)
    highest, total, context = jax.lax.fori_loop(first_ref[0] // read, (start + size) // read, add, sums)
    out_ref[...] = (context / total[:, None]).astype(out_ref.dtype)
    total_ref[...] = highest + jnp.log(total)


def query_kernel(first_ref, q_ref, k_ref, v_ref, dout_ref, total_ref, delta_ref, dq_ref, *, scale):
    """Computes the gradient of a block of queries."""
    size = q_ref.shape[0]
    start = size * pl.program_id(2)
    read = min(STEP, size // 2)
    queries = start + jnp.arange(size)
    first, q, dout, total, delta = first_ref[...], q_ref[...], dout_ref[...], total_ref[...], delta_ref[...]

    def add(step, dq):
        rows = pl.ds(step * read, read)
        k = k_ref[rows]
        scores = visible_scores(q, k, first, queries, step * read + jnp.arange(read), scale)
        weights = jnp.exp(scores - total[:, None])
        dscores = weights * (dot(dout, v_ref[rows], 1, 1) - delta[:, None])
        return dq + dot(dscores.astype(k.dtype), k, 1, 0)

    zero = jnp.zeros(q.shape, jnp.float32)
    dq = jax.lax.fori_loop(first_ref[0] // read, (start + size) // read, add, zero)
    dq_ref[...] = (scale * dq).astype(dq_ref.dtype)


def key_value_kernel(first_ref, end_ref, q_ref, k_ref, v_ref, dout_ref, total_ref, delta_ref, dk_ref, dv_ref, *, scale):
    """Computes the gradients of a block of keys and values from all heads that read them."""
    block = pl.program_id(2)
    size = k_ref.shape[0]
    keys = block * size + jnp.arange(size)
    read = min(STEP, size // 2)
    k, v = k_ref[...], v_ref[...]

    def add_head(head, sums):
        def add(step, sums):
            dk, dv = sums
            rows = pl.ds(step * read, read)
            q, dout = q_ref[rows, head], dout_ref[rows, head]
            scores = visible_scores(q, k, first_ref[rows], step * read + jnp.arange(read), keys, scale)
            weights = jnp.exp(scores - total_ref[head, rows][:, None])
            dweights = dot(dout, v, 1, 1)
            dscores = weights * (dweights - delta_ref[head, rows][:, None])
            dv = dv + dot(weights.astype(q.dtype), dout, 0, 0)
            return dk + dot(dscores.astype(q.dtype), q, 0, 0), dv

        return jax.lax.fori_loop(block * (size // read), pl.cdiv(end_ref[block], read), add, sums)

    zeros = jnp.zeros(k.shape, jnp.float32), jnp.zeros(k.shape, jnp.float32)
    dk, dv = jax.lax.fori_loop(0, q_ref.shape[1], add_head, zeros)
    dk_ref[...], dv_ref[...] = (scale * dk).astype(dk_ref.dtype), dv.astype(dv_ref.dtype)


@splice("attend_cudnn.run")
def _(q, k, v, segment_ids, platform, options, context):
    if segment_ids is None:
        context = jax.nn.dot_product_attention(q, k, v, **options)
    else:
        context = attend_packed(q, k, v, segment_ids, platform)
