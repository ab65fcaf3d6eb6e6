"""The programs of this package, lowered for a platform with 8 devices, without what Neuron's compiler does not take."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from generator.language import point, setting
from generator.language.roles import (
    PRESETS,
    abstract,
    abstract_batch,
    eval_step,
    make_mesh,
    new_state,
    refused,
    train_step,
)

SIZES = {"layers": setting("few_layers"), "vocab_size": 256, "sequence_length": 64, "batch_size": 16, "accumulation": 2}
CONFIG = dataclasses.replace(PRESETS["tiny"], **SIZES)


def traced() -> dict[str, jax.stages.Traced]:
    """Traces each program of this package for a mesh of devices that are not here."""
    axes = make_mesh(1, 1, 1, devices=jax.devices()[:1]).axis_names
    tensor = math.gcd(2, getattr(CONFIG, "kv_heads", 2))
    sizes = tuple({"fsdp": 4, "tensor": tensor}.get(axis, 1) for axis in axes)
    mesh = AbstractMesh(sizes, axes, axis_types=(AxisType.Auto,) * len(axes))
    with jax.sharding.use_abstract_mesh(mesh):
        state = abstract(lambda: new_state(CONFIG), mesh)
        batch = abstract_batch(CONFIG, mesh)
        programs = {
            "initialise": jax.jit(lambda model: new_state(CONFIG, model)).trace(state.model),
            "step": jax.jit(train_step, static_argnums=2).trace(state, batch, CONFIG),
            "evaluate": jax.jit(eval_step, static_argnums=2).trace(state.model, batch, CONFIG),
        }
    point("traced.more", programs)
    return programs


def test_no_program_has_what_is_refused():
    found = {name: refused(program) for name, program in traced().items()}
    assert not any(found.values()), found


def sum_counts(x):
    mesh = AbstractMesh((2,), ("x",), axis_types=(AxisType.Auto,))
    sums = jax.shard_map(
        lambda x: jax.lax.psum(x.astype(int), "x"), mesh=mesh, in_specs=PartitionSpec("x"), out_specs=PartitionSpec()
    )
    return sums(x)


def count_down(x):
    return jax.lax.while_loop(lambda x: x[0] > 0, lambda x: x - 1, x)


PROBLEMS = {
    "a branch": lambda x: jax.lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
    "a loop bound by data": lambda x: jax.lax.fori_loop(0, x[0].astype(int), lambda i, x: 2 * x, x),
    "a loop bound by data: ": count_down,
    "threefry": lambda x: x + jax.random.normal(jax.random.key(0), x.shape),
    "a custom call": lambda x: jax.ffi.ffi_call("unknown", x)(x),
    "a sort by EQ or NE": jnp.sort,
    "a reduction of several arrays": jnp.argmax,
    "TopK of integers": lambda x: jax.lax.top_k(x.astype(int), 2),
    "a product of integers": lambda x: x.astype(int) @ x.astype(int),
    "a scatter that combines integers": lambda x: jnp.bincount(x.astype(int), length=4),
    "a sum of integers over devices": sum_counts,
    "a type": lambda x: x.astype("float8_e4m3fn"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_is_refused_is_found(name):
    (found,) = refused(jax.jit(PROBLEMS[name]).trace(jnp.ones(8)))
    assert found.startswith(name)


def test_what_is_taken_is_not_refused():
    def program(x):
        x, _ = jax.lax.scan(lambda x, _: (2 * x, None), x, length=3)
        values, places = jax.lax.top_k(x, 2)
        written = jnp.zeros(8, int).at[places].set(1) + jnp.argsort(x.astype(int))
        return jnp.zeros(8).at[places].add(values), written, x @ x, x.sum()

    assert refused(jax.jit(program).trace(jnp.ones(8))) == {}
