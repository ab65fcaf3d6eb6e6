"""Sequences of like length read pages together: on CPUs, where reading is most of what a token of a long one takes."""

import jax
import numpy as np
from jax import Array

from generator.language import excludes, requires, splice
from generator.language.roles import Cache, Pages, attend_cached

requires("unstacked")  # of CPUs
excludes("latent_attention")  # which attends by itself


def attend_by_length(q: Array, cache: Cache, pages: Pages, positions: Array) -> Array:
    """`attend_cached`, eight sequences at a time: each eight read as far as the longest of them, not of all."""

    def attend_some(some: tuple[Array, ...]) -> Array:
        q, key, value, tables, positions = some
        return attend_cached(q, cache._replace(key=key, value=value), pages._replace(tables=tables), positions)

    every, n = (q, cache.key, cache.value, pages.tables, positions), np.gcd(len(q), 8)
    eights = jax.tree.map(lambda x: x.reshape(-1, n, *x.shape[1:]), every)
    return jax.lax.map(attend_some, eights).reshape(q.shape)


@splice("Attention.cached")
def _(q, cache, pages, positions, context):
    context = attend_by_length(q, cache, pages, positions)
