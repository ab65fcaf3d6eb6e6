"""Context parallelism of attention in plain JAX: each device scores its own queries against all keys.

Source: Llama Team 2024, arXiv 2407.21783, section 3.3.2.
"""

import jax

from generator.language import proceed, splice
from generator.language.roles import shard


@splice("attend_tiles.keys")
def _(k, v):
    k, v = shard(k, "batch", None, "kv_heads", None), shard(v, "batch", None, "kv_heads", None)  # gathers them


@splice("attend_tiles.queries")
def _(T, C):
    proceed()
    mesh = jax.sharding.get_abstract_mesh()
    if not mesh.empty and mesh.shape["context"] > 1:
        C = T  # all of them, which are spread over devices
