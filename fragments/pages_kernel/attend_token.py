"""Paged attention of decode steps: a Pallas kernel for TPUs.

Source: Dao et al. 2022, arXiv 2205.14135 (online softmax); Kwon et al. 2023, arXiv 2309.06180 (paged attention).
"""

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec

from generator.language import excludes, point, requires, splice
from generator.language.roles import RULES, Cache, Pages, attend_cached

requires("write_rows", "pages/pages")  # of TPUs
excludes("latent_attention", "attention_sinks", "alibi")  # the kernel knows none of them


def attend_token(q: Array, cache: Cache, pages: Pages, positions: Array, scale: float) -> Array:
    """Computes `attend_cached` for one token of each sequence: q [B, 1, N, H], positions [B, 1] -> [B, 1, N, H].

    Each device runs the kernel on its own heads.
    """
    point("attend_token.pages", pages, cache)
    before = positions[:, 0]  # [B]: number of cached keys
    first = jnp.zeros_like(before)  # [B]: first position that is seen
    point("attend_token.first", first, before)
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return attend_pages(q, cache, pages, first, before, scale, interpret=jax.default_backend() != "tpu")

    def local(q: Array, cache: Cache, pages: Pages, first: Array, before: Array) -> Array:
        # compiled for the mesh's devices, which need not be those of this machine
        interpret = mesh.abstract_device.platform != "tpu"
        return attend_pages(q, cache, pages, first, before, scale, interpret)

    heads, pool, all_ = PartitionSpec(None, None, RULES["heads"]), PartitionSpec(None, RULES["heads"]), PartitionSpec()
    specs = heads, cache._replace(first=all_, key=heads, value=heads), Pages(pool, pool, all_), all_, all_
    # check_vma: the kernel does not say over which mesh axes its results vary
    return jax.shard_map(local, in_specs=specs, out_specs=heads, check_vma=False)(q, cache, pages, first, before)


def attend_pages(
    q: Array, cache: Cache, pages: Pages, first: Array, before: Array, scale: float, interpret: bool
) -> Array:
    """Computes `attend_token` on one device: a token sees itself and the positions from `first` [B] below `before` [B].

    The grid goes over sequences and blocks of pages. Pallas fetches a block while the one before is computed, and skips
    one that is there already: so the index of a block that a token does not see is clipped to one that it sees.
    """
    (B, _, N, H), (K, S), M = q.shape, pages.key.shape[1:3], pages.block_tables.shape[1]
    # pages in a block: at most 1 MiB of bfloat16 keys; vector memory holds two blocks of keys and two of values
    n = max(1, min(16, M, 2**19 // (K * S * H)))
    block_tables = jnp.pad(pages.block_tables, ((0, 0), (0, -M % n)))  # to whole blocks; no token sees the padding
    G, C, M = N // K, n * S, block_tables.shape[1]
    blocks = M // n
    q = q.reshape(B, K, G, H)
    key, value = (x.astype(q.dtype).swapaxes(1, 2) for x in (cache.key, cache.value))  # [B, K, 1, H]
    seen = jnp.clip(jnp.arange(blocks), first[:, None] // C, jnp.maximum(before[:, None] - 1, 0) // C)  # [B, M / n]
    starts = (jnp.arange(B)[:, None] * M + seen * n).ravel()  # of each block in the flat block tables

    def score(q, k):
        scores = scale * jnp.einsum("KGH,KCH->KGC", q, k, preferred_element_type=jnp.float32)
        point("attend_token.scores", scores)
        return scores

    def kernel(block_tables, starts, first, before, q, own_key, own_value, *refs):
        """Computes one block of one sequence; the sums stay in vector memory until its last block."""
        keys, values, (context, highest, total) = refs[:n], refs[n : 2 * n], refs[2 * n :]
        sequence, i = pl.program_id(0), pl.program_id(1)

        @pl.when(i == 0)
        def _():
            highest[...] = score(q[0], own_key[0])
            total[...] = jnp.ones((K, G, 1))
            context[0] = jnp.broadcast_to(own_value[0].astype(jnp.float32), (K, G, H))

        @pl.when((i * C < before[sequence]) & ((i + 1) * C > first[sequence]))
        def _():
            k, v = (jnp.concatenate([page[0].astype(q.dtype) for page in x], axis=1) for x in (keys, values))
            scores = score(q[0], k)  # of keys [K, C, H]: [K, G, C]
            places = i * C + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 2)
            scores = jnp.where((places >= first[sequence]) & (places < before[sequence]), scores, -1e30)
            above, highest[...] = highest[...], jnp.maximum(highest[...], scores.max(axis=-1, keepdims=True))
            weights, kept = jnp.exp(scores - highest[...]), jnp.exp(above - highest[...])
            total[...] = kept * total[...] + weights.sum(axis=-1, keepdims=True)
            added = jnp.einsum("KGC,KCH->KGH", weights.astype(v.dtype), v, preferred_element_type=jnp.float32)
            context[0] = kept * context[0] + added

        @pl.when(i == blocks - 1)
        def _():
            context[0] /= total[...]

    def row(*shape):
        return pl.BlockSpec((1, *shape), lambda sequence, i, *_: (sequence, 0, 0, 0))

    def page(j):
        def place(sequence, i, block_tables, starts, *_):
            return block_tables[starts[sequence * blocks + i] + j], 0, 0, 0

        page = pl.BlockSpec((1, K, S, H), place)
        scales = pl.BlockSpec((1, K, S), lambda *at: place(*at)[:3])
        return jax.tree.map(lambda pool: page if pool.ndim == 4 else scales, pages.key)

    block_pages = [page(j) for j in range(n)]
    arrays = [pages.key] * n + [pages.value] * n
    sums = pltpu.VMEM((K, G, 1), jnp.float32)
    context = pl.pallas_call(
        kernel,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=4,
            grid=(B, blocks),
            in_specs=[row(K, G, H), row(K, 1, H), row(K, 1, H), *block_pages, *block_pages],
            out_specs=row(K, G, H),
            scratch_shapes=[sums, sums],
        ),
        out_shape=jax.ShapeDtypeStruct(q.shape, jnp.float32),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        interpret=interpret,
        name="attend_token",
    )((cache.first + block_tables).ravel(), starts, first, before, q, key, value, *arrays)
    return context.reshape(B, 1, N, H).astype(q.dtype)


def attend_padded(q: Array, cache: Cache, pages: Pages, positions: Array) -> Array:
    """Computes `attend_cached` of q [B, T, N, H] over heads padded with zeros to whole lanes."""
    H, lanes = q.shape[-1], pages.key.shape[-1]
    q = jnp.pad(q, ((0, 0), (0, 0), (0, 0), (0, lanes - H)))
    if q.shape[1] == 1:
        context = attend_token(q, cache, pages, positions, H**-0.5)
    else:
        context = attend_cached(q, cache, pages, positions, H**-0.5)
    return context[..., :H]


@splice("empty_pages.shape", optional=True)
def _(config, count, size, shape):
    lanes = -(-config.head_size // 128) * 128  # whole lanes, which a kernel reads without a copy
    shape = count, config.kv_heads, size, lanes


@splice("Attention.in_pages", optional=True)
def _(cache, pages):
    lanes = (0, 0), (0, 0), (0, 0), (0, pages.key.shape[-1] - cache.key.shape[-1])
    cache = cache._replace(key=jnp.pad(cache.key, lanes), value=jnp.pad(cache.value, lanes))


@splice("Attention.cached", optional=True)
def _(q, cache, pages, positions, context):
    context = attend_padded(q, cache, pages, positions)
