"""Attention in length buckets: on CPUs, reading the KV cache dominates the decoding of long sequences."""

import jax
import numpy as np
from jax import Array

from generator.language import excludes, requires, splice
from generator.language.roles import Cache, Pages, attend_cached

requires("unstacked")  # of CPUs
excludes("latent_attention")  # which has an attention of its own


def attend_in_buckets(q: Array, cache: Cache, pages: Pages, positions: Array) -> Array:
    """Computes `attend_cached` for eight sequences at a time, each bucket as far as its own longest sequence."""

    def attend_bucket(bucket: tuple[Array, ...]) -> Array:
        q, key, value, block_tables, positions = bucket
        bucket_cache = cache._replace(key=key, value=value)
        return attend_cached(q, bucket_cache, pages._replace(block_tables=block_tables), positions)

    every, n = (q, cache.key, cache.value, pages.block_tables, positions), np.gcd(len(q), 8)
    buckets = jax.tree.map(lambda x: x.reshape(-1, n, *x.shape[1:]), every)
    return jax.lax.map(attend_bucket, buckets).reshape(q.shape)


@splice("Attention.cached")
def _(q, cache, pages, positions, context):
    context = attend_in_buckets(q, cache, pages, positions)
