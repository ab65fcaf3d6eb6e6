"""Bytes and seconds of a plan, as estimated by a model that compiles nothing."""

import dataclasses
import functools
import math
from typing import Any

import jax
import numpy as np

from generator.language import requires
from generator.language.roles import (
    KERNELS,
    PRESETS,
    Chip,
    Config,
    abstract_batch,
    bandwidth,
    flops_per_token,
    loss,
    new_state,
)

requires("plan/plan")


@dataclasses.dataclass(frozen=True)
class Plan:
    """A candidate, with its bytes of a device and its seconds of a step, as estimated or as compiled."""

    config: Config
    memory: float
    seconds: float
    verdict: str = "estimated"

    def overrides(self, preset: str) -> dict[str, Any]:
        """Returns the settings that differ from those of the preset."""
        names = [field.name for field in dataclasses.fields(Config)]
        values = {name: getattr(self.config, name) for name in names}
        return {name: value for name, value in values.items() if value != getattr(PRESETS[preset], name)}


def array_sizes(tree: Any) -> int:
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def on_mesh(config: Config) -> jax.sharding.AbstractMesh:
    """Returns the mesh of a config whose sizes are all given, of no devices."""
    axes = [field.name for field in dataclasses.fields(Config) if field.name.startswith("mesh_")]
    return jax.sharding.AbstractMesh(tuple(getattr(config, axis) for axis in axes), tuple(axis[5:] for axis in axes))


def products(jaxpr: Any) -> float:
    """Returns the FLOPs of the products without batch dimensions in a jaxpr, which leaves out attention's."""
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (left, _), (batch, _) = equation.params["dimension_numbers"]
            contracted = math.prod(equation.invars[0].aval.shape[axis] for axis in left)
            total += 0 if batch else 2 * math.prod(equation.outvars[0].aval.shape) * contracted
        inner = [x for value in equation.params.values() for x in (value if isinstance(value, tuple) else [value])]
        inner = [getattr(x, "jaxpr", x) for x in inner]
        total += equation.params.get("length", 1) * sum(products(x) for x in inner if hasattr(x, "eqns"))
    return total


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What a model takes, whatever its mesh is."""

    stored: int  # bytes of its training state
    parameters: int  # bytes of its parameters
    kept: int  # bytes that the forward pass keeps of a sequence
    flops: float  # of the products of all passes over a sequence


@functools.cache
def measure(config: Config) -> Sizes:
    """Traces the gradient of a model on one device."""
    state = jax.eval_shape(lambda: new_state(config))
    model = state.model

    def rows(count: int) -> dict[str, jax.ShapeDtypeStruct]:
        sized = dataclasses.replace(config, batch_size=count)
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), abstract_batch(sized, on_mesh(sized)))

    def kept(count: int) -> int:
        cut = dataclasses.replace(config, logits_per_chunk=1)  # so that logits are not kept, of one sequence or of two
        saved = jax.eval_shape(lambda *x: jax.vjp(lambda m: loss(m, x[1], cut)[0], x[0])[1], model, rows(count))
        return array_sizes(saved)

    gradient = jax.jit(lambda model, batch: jax.grad(lambda m: loss(m, batch, config)[0])(model))
    flops = products(gradient.trace(model, rows(1)).jaxpr)
    return Sizes(array_sizes(state), array_sizes(model), kept(2) - kept(1), flops)


def estimate(config: Config, chip: Chip, places: list[tuple[int, ...]]) -> Plan:
    """Returns a plan with its bytes and seconds, as if no collective were hidden.

    The fitted efficiency, the peaks and the bandwidths are those of step_cost.
    """
    mesh = on_mesh(config)
    one = {name: 1 for name in dataclasses.asdict(config) if name.startswith("mesh_")}
    sizes = measure(dataclasses.replace(config, **one, batch_size=1, accumulation=1))
    stored, parameters, kept = sizes.stored, sizes.parameters, sizes.kept
    tensor = mesh.shape["tensor"]
    shards = math.prod(size for axis, size in mesh.shape.items() if axis != "data")
    rows = config.batch_size * tensor / len(places)  # of a device, in all microbatches
    tokens = rows / config.accumulation * config.sequence_length
    logits = 8 * min(tokens * config.vocab_size / tensor, config.logits_per_chunk)
    layer = parameters / config.layers / tensor  # gathered whole, in 16 bits, and the next one too
    memory = (stored + parameters) / shards + layer + kept * rows / config.accumulation / tensor + logits
    activations = 2 * rows * config.sequence_length * config.width * config.layers  # between blocks, in 16 bits
    memory += (1 - 1 / tensor) * activations / config.accumulation  # the axis tensor does not divide these

    attention = 2 * (flops_per_token(config, False) - flops_per_token(config, True)) / 2  # its causal half
    attention *= rows * config.sequence_length / tensor
    work = (rows * sizes.flops / tensor + attention / KERNELS) / chip.peak
    work += (3 * stored / shards + 3 * kept * rows / tensor) / chip.bandwidth

    grid = np.arange(len(places)).reshape([*mesh.shape.values()])

    def along(bytes_sent: float, kind: str, *axes: str) -> float:
        group = grid[tuple(slice(None) if axis in axes else 0 for axis in mesh.shape)].ravel()
        share = 1 - 1 / len(group)
        return share * bytes_sent / bandwidth([places[i] for i in group], kind, chip, places) if share else 0

    sharding = [axis for axis in mesh.shape if axis not in ("data", "tensor")]
    gathered = config.accumulation * 2 * parameters / 2  # in both passes, in 16 bits
    sends = along(gathered / tensor, "all-gather", *sharding)
    sends += along(config.accumulation * parameters / tensor, "reduce-scatter", *sharding)
    sends += along(2 * parameters / shards, "all-reduce", "data")
    sends += along(4 * 2 * activations, "all-reduce", "tensor")  # two in each pass
    return Plan(config, memory, work / chip.efficiency + sends)
