"""Context parallelism of attention in plain JAX: each device scores its own queries against all keys.

Source: Llama Team 2024, arXiv 2407.21783, section 3.3.2.
"""

import jax

from generator.language import proceed, splice
from generator.language.roles import shard


@splice("attend_xla.keys")
def _(k, v):
    k, v = shard(k, "batch", None, "kv_heads", None), shard(v, "batch", None, "kv_heads", None)  # gathers them


@splice("attend_xla.size")
def _(T, size):
    proceed()
    mesh = jax.sharding.get_abstract_mesh()
    if not mesh.empty and mesh.shape["context"] > 1:
        size = T  # one block, whose queries are spread over devices
