"""Sequence parallelism: devices of the tensor axis share the norms and additions of the residual stream by tokens.

Each device then gathers the tokens that a product needs, and sums its outputs into its own tokens alone: the same bytes
as one sum over all, and a part of the memory.

Source: Korthikanti et al. 2022, arXiv 2205.05198, section 4.2.2.
"""

import jax
from jax.sharding import PartitionSpec

from generator.language import proceed, splice
from generator.language.roles import RULES, shard


@splice("shard.constrain")
def _(x, axes):
    spec = [RULES.get(axis) for axis in axes]
    tensor = jax.sharding.get_abstract_mesh().shape["tensor"]
    if axes[-1] == "residual" and x.shape[-2] % tensor == 0:  # not where tokens are decoded one by one
        spec[-2] = (*RULES["sequence"], "tensor")
    x = jax.lax.with_sharding_constraint(x, PartitionSpec(*spec))


@splice("shard.rows", after="context", optional=True)
def _(x):
    if jax.sharding.get_abstract_mesh().shape["tensor"] == 1:  # else XLA would gather x in order to lay it out
        proceed()


@splice("Attention.project", after="fused_query_key_value", optional=True)
def _(q, k, v):
    proceed()
    q, k, v = (shard(x, "batch", "sequence", "heads", None) for x in (q, k, v))  # of all tokens


@splice("Attention.project_query", after="low_rank_query", optional=True)
def _(q):
    proceed()
    q = shard(q, "batch", "sequence", "heads", None)  # of all tokens


@splice("Decoder.embedded")
def _(x):
    x = shard(x, "batch", "sequence", None)  # first as the rows of the table are summed over devices


@splice("Attention.attend", after="pages", optional=True)
def _(context):
    proceed()
    context = shard(context, "batch", "sequence", "heads", None)  # of all tokens, until the product with `out`
