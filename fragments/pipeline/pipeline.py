"""Pipeline parallelism: each stage of devices has layers of its own, and microbatches pass from stage to stage.

With repeats, they pass through the ring of stages several times, which makes the time in which stages wait shorter.

Source: Huang et al. 2018, arXiv 1811.06965 (microbatches); Narayanan et al. 2021, arXiv 2104.04473, section 2.2.2
(repeats).
"""

import math
from collections.abc import Callable
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from generator.language import layers, proceed, provide, setting, splice
from generator.language.roles import RULES, Config, InputError, NonNegativeInt, PositiveInt, shard


class ParallelConfig:
    mesh_stage: Annotated[int, -1, 1_000_000] = 1  # stages of the pipeline, each of which has a part of the layers


class ModelConfig:
    pipeline_microbatches: NonNegativeInt = 0  # parts of each microbatch of --accumulation in it; 0: --mesh-stage
    pipeline_repeats: PositiveInt = 1  # times that each of these passes through all stages


@provide("make_mesh", optional=True)
def stage() -> int:
    return 1


@splice("make_mesh.sizes", after="expert_mesh context")
def _(sizes, stage):
    sizes["stage"] = stage


@splice("make_mesh.across")
def _(shape, slices, across):
    across["stage"] = math.gcd(shape["stage"], slices)  # first, as stages send least
    across["data"] = math.gcd(shape["data"], slices // across["stage"])
    across["fsdp"] = slices // across["stage"] // across["data"]


@provide("train")
def stage(config) -> int:
    return config.mesh_stage


def microbatches(config: ModelConfig, stages: int) -> int:
    """Returns how many parts of a batch are in the pipeline."""
    return config.pipeline_microbatches or stages


@splice("abstract_batch.layout")
def _(config, mesh):
    check_pipeline(config, mesh)


def check_pipeline(config: Config, mesh: Mesh) -> None:
    """Raises InputError if a batch or the layers do not divide over the pipeline."""
    if (stages := mesh.shape["stage"]) == 1:
        return
    count = microbatches(config, stages)
    if count % stages:
        raise InputError(f"--pipeline-microbatches {count}: must be a multiple of --mesh-stage, {stages}")
    devices = math.prod(mesh.shape[axis] for axis in RULES["batch"])
    if config.batch_size % (config.accumulation * count * devices):
        factors = " x ".join(("--accumulation", "--pipeline-microbatches", *RULES["batch"]))
        raise InputError(
            f"--pipeline-microbatches {count}: --batch-size {config.batch_size} must be a multiple of {factors}, "
            f"{config.accumulation * count * devices}"
        )
    flags = f"--mesh-stage {stages} --pipeline-repeats {config.pipeline_repeats}"
    parts = stages * config.pipeline_repeats  # into which the layers are cut
    if setting("one_stack"):
        if config.layers % parts:
            raise InputError(f"{flags}: their product must divide --layers {config.layers}")
    else:
        counts = jax.tree.leaves(layers.stacked(lambda group: group.count))
        if any(count % parts for count in counts):
            raise InputError(
                f"{flags}: their product must divide the layers, or periods of layers, of each scan: {counts}"
            )


@splice("abstract.sharding")
def _(x, axes, mesh, sharding):
    proceed()
    if x.ndim > len(axes) and x.shape[0] % mesh.shape["stage"] == 0:  # stacked layers
        sharding = NamedSharding(mesh, PartitionSpec("stage", *sharding.spec[1:]))


@splice("shard.rows", optional=True)
def _(x):
    if jax.sharding.get_abstract_mesh().shape["stage"] == 1:  # else XLA would gather x in order to lay it out
        proceed()


@splice("Decoder.scan")
def _(self, x, group, remat, block):
    x, _ = scan_stages(remat(block), x, group.stack, self.config)


def scan_stages(f: Callable, init: Array, xs: Any, config: ModelConfig) -> tuple[Array, Any]:
    """Computes jax.lax.scan(f, init, xs) over stacked layers, of which each stage of the mesh has its own.

    Microbatch m has the rows m, m + M, ... of init [B, T, D], so that it is sharded as the batch is. In each iteration
    a stage applies its next layers to one microbatch, and sends it to the next stage. What f returns beside x are sums
    over tokens, which are added up over microbatches.
    """
    mesh = jax.sharding.get_abstract_mesh()
    S = 1 if mesh.empty else mesh.shape["stage"]
    M = microbatches(config, S)
    R = config.pipeline_repeats
    rows = len(init)
    if S == 1 or rows % M or not len(jax.tree.leaves(xs)[0]):
        if setting("unroll"):
            return jax.lax.scan(f, init, xs, unroll=True)
        else:
            return jax.lax.scan(f, init, xs)

    def call_on_rows(layer: nnx.Module, number: Array, x: Array, *values: Any, **named: Any) -> Any:
        """Calls a layer with a microbatch: its rows of each argument whose first axis is the batch."""

        def take(value: Array) -> Array:
            if value.shape[:1] != (rows,):
                return value
            value = value.reshape(rows // M, M, *value.shape[1:])
            return jax.lax.dynamic_index_in_dim(value, number, axis=1, keepdims=False)

        values, named = jax.tree.map(take, (values, named))
        return layer(x, *values, **named)

    def run(parts: Array, xs: Any) -> tuple[Array, Any]:
        """Runs one stage: parts [1, M, B / M, T, D], xs [R, layers of the stage in a round, ...]."""
        stage = jax.lax.axis_index("stage")
        parts = parts[0]

        def iterate(x: Array, iteration: Array) -> tuple[Array, Any]:
            place = iteration - stage  # S microbatches go through all rounds, then the next S
            is_real = (place >= 0) & (place < M * R)  # others fill and drain the pipeline
            place = jnp.clip(place, 0, M * R - 1)
            turn = place // S % R
            number = place // (S * R) * S + place % S
            x = jnp.where((stage == 0) & (turn == 0), parts[number], x)

            def apply(x: Array, layer: Any) -> tuple[Array, Any]:
                def bind(module: nnx.Module) -> Callable:
                    return jax.tree_util.Partial(call_on_rows, module, number)

                return f(x, jax.tree.map(bind, layer, is_leaf=lambda value: isinstance(value, nnx.Module)))

            # in one round, layers are the same in each iteration: the backward pass keeps no copies of them
            x, sums = jax.lax.scan(apply, x, jax.tree.map(lambda stacked: stacked[turn if R > 1 else 0], xs))
            sums = jax.tree.map(lambda value: jnp.where(is_real, value, 0), sums)
            return jax.lax.ppermute(x, "stage", [(i, (i + 1) % S) for i in range(S)]), (x, turn, sums)

        _, (done, turns, sums) = jax.lax.scan(iterate, parts[0], jnp.arange(M * R + S - 1))
        sums = jax.tree.map(lambda value: jnp.zeros((R, *value.shape[1:])).at[turns].add(value), sums)
        last = np.arange(M) // S * S * R + (R - 1) * S + np.arange(M) % S + S - 1  # iteration in which each is done
        return jnp.where(stage == S - 1, done[last], 0)[None], sums

    parts = jnp.moveaxis(init.reshape(rows // M, M, *init.shape[1:]), 1, 0)
    parts = jnp.broadcast_to(shard(parts, None, "batch", "sequence", "residual"), (S, *parts.shape))
    rounds = jax.tree.map(lambda value: value.reshape(R, -1, *value.shape[1:]), xs)
    specs = PartitionSpec("stage"), PartitionSpec(None, "stage")
    # check_vma: JAX 0.10 takes residuals of a shard_map in this one for split over stages again, if it knows them so
    x, sums = jax.shard_map(run, in_specs=specs, out_specs=specs, axis_names={"stage"}, check_vma=False)(parts, rounds)
    x = shard(jnp.moveaxis(x.sum(axis=0), 0, 1).reshape(init.shape), "batch", "sequence", "residual")
    return x, jax.tree.map(lambda value: value.reshape(-1, *value.shape[2:]), sums)
