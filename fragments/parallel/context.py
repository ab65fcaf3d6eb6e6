"""Context parallelism: devices share each sequence, and gather the keys and values of all of it.

Source: Llama Team 2024, arXiv 2407.21783, section 3.3.2.
"""

from typing import Annotated

import jax

from generator.language import proceed, provide, setting, splice
from generator.language.roles import RULES, InputError, shard


class ParallelConfig:
    mesh_context: Annotated[int, -1, 1_000_000] = 1  # devices that shard each sequence and the parameters


@provide("make_mesh", optional=True)
def context() -> int:
    return 1


@splice("make_mesh.sizes", after="expert_mesh")
def _(sizes, context):
    sizes["context"] = context


@provide("train")
def context(config) -> int:
    return config.mesh_context


@splice("shard.rows", optional=True)
def _(x):
    if jax.sharding.get_abstract_mesh().shape["context"] == 1:  # else XLA would gather x in order to lay it out
        proceed()


@splice("gather.varying", optional=True)
def _(p, split, y):
    tokens = (*RULES["batch"], *RULES["sequence"])
    y = jax.lax.pcast(p.get_value(), tuple(axis for axis in tokens if axis not in split), to="varying")


@splice("Decoder.embedded", before="sequence_parallel")
def _(x):
    x = shard(x, "batch", None, "sequence")  # width over the devices, as in the table: they exchange it for tokens


@splice("abstract_batch.layout")
def _(config, mesh):
    shares = mesh.shape["context"]
    if setting("context_multiple") == 1:
        multiple = shares
    else:
        multiple = shares * setting("context_multiple") if shares > 1 else 1
    if config.sequence_length % multiple:
        raise InputError(
            f"--sequence-length {config.sequence_length}: must be a multiple of {multiple} with --mesh-context {shares}"
        )
