"""The model against itself: packed or alone, recomputed or kept, on any mesh or on one device."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from generator.language.roles import (
    PACKAGE,
    REMAT,
    RULES,
    SMALL,
    Config,
    Decoder,
    InputError,
    abstract,
    forward,
    make_mesh,
    run_python,
    shard,
)


def random_tokens(shape: tuple[int, int], config: Config = SMALL) -> jax.Array:
    return jax.random.randint(jax.random.key(1), shape, 0, config.vocab_size)


@functools.partial(jax.jit, static_argnums=0)
def small_model(config: Config = SMALL) -> Decoder:
    return Decoder(dataclasses.replace(config, init_std=0.2), nnx.Rngs(0))


def test_packed_documents_give_what_each_gives_alone():
    model = small_model()
    lengths = [5, 11, 5]
    tokens = random_tokens((1, sum(lengths) + 3))  # three are padding
    segment_ids = jnp.repeat(jnp.array([1, 2, 3, 0]), jnp.array([*lengths, 3]))[None]
    positions = jnp.concatenate([jnp.arange(n) for n in [*lengths, 3]])[None]
    packed = forward(model, tokens, positions, segment_ids)
    start = 0
    for length in lengths:
        alone = forward(model, tokens[:, start : start + length])
        np.testing.assert_allclose(packed[:, start : start + length], alone, atol=1e-4)
        start += length


def test_a_token_changes_only_what_follows_in_its_document():
    model = small_model()
    tokens = random_tokens((2, 12))
    segment_ids = jnp.array([[1] * 7 + [2] * 5] * 2)
    before = forward(model, tokens, None, segment_ids)
    after = forward(model, tokens.at[0, 3].set((tokens[0, 3] + 1) % SMALL.vocab_size), None, segment_ids)
    changed = np.any(np.asarray(before != after), axis=-1)
    expected = np.zeros((2, 12), bool)
    expected[0, 3:7] = True
    np.testing.assert_array_equal(changed, expected)


def packed_batch(config: Config) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns tokens, positions and segment ids of eight rows of two documents."""
    positions = jnp.concatenate([jnp.arange(9), jnp.arange(7)])
    segment_ids = jnp.array([1] * 9 + [2] * 7)
    return random_tokens((8, 16), config), jnp.tile(positions, (8, 1)), jnp.tile(segment_ids, (8, 1))


@jax.jit
@jax.value_and_grad
def value_and_gradient(model, tokens, positions, segment_ids):
    return jnp.mean(forward(model, tokens, positions, segment_ids) ** 2)


EVERY_PRODUCT = "attention,query,key_value,out,gate,up,down"


def test_what_is_computed_again_changes_nothing():
    values = [
        jax.tree.leaves(value_and_gradient(small_model(dataclasses.replace(SMALL, remat=remat)), *packed_batch(SMALL)))
        for remat in ("none", "dots", "full", "attention", EVERY_PRODUCT)
    ]
    for other in values[1:]:
        for a, b in zip(values[0], other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def kept_bytes(remat: str) -> int:
    """Returns the bytes that the small model's forward pass keeps for its backward pass."""
    config = dataclasses.replace(SMALL, remat=remat)
    model = jax.eval_shape(lambda: small_model(config))
    backward = jax.eval_shape(
        lambda model: jax.vjp(lambda m: forward.__wrapped__(m, *packed_batch(SMALL)), model)[1], model
    )
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(backward))


def test_the_forward_pass_keeps_what_remat_names():
    kept = {remat: kept_bytes(remat) for remat in [*REMAT, EVERY_PRODUCT]}
    assert kept.get("context", 0) < kept["attention"], kept  # which keeps the outputs of attention and its inputs
    for name in kept.keys() & {"attention", "context", "query", "key_value", "up"}:
        assert kept["full"] < kept[name] < kept[EVERY_PRODUCT] < kept["none"], kept
    for name in "out", "down":  # the backward pass need not read them: they may only be added to the residual
        assert kept["full"] <= kept[name] < kept[EVERY_PRODUCT], kept


def test_a_remat_that_is_not_known_is_named():
    with pytest.raises(InputError, match="--remat attention,ouf: give one of none, full, dots, attention, "):
        kept_bytes("attention,ouf")


def most_shares(config: Config) -> int:
    """Returns over how many devices --mesh-tensor can split the parameters; keys may have a single head."""
    model = jax.eval_shape(lambda: small_model(config))
    parameters = jax.tree.leaves(model, is_leaf=lambda x: isinstance(x, nnx.Param))
    axes = [pair for x in parameters for pair in zip(x.axes[::-1], x.shape[::-1])]  # without that of the layers
    return math.gcd(*(size for name, size in axes if RULES.get(name) == ("tensor",)))


def compare_meshes():
    """Checks on 8 devices that each mesh gives one device's loss and gradient; `shard` lays arrays out."""
    config = dataclasses.replace(SMALL, vocab_size=256)
    x = jnp.ones((8, 16, 64))
    assert shard(x, "batch", "sequence", "mlp") is x  # no mesh is set
    batch, model = packed_batch(config), small_model(config)
    expected = jax.tree.leaves(value_and_gradient(model, *batch))
    pair, most = (math.gcd(most_shares(config), devices) for devices in (2, 8))
    for sizes in [(2, 4 // pair, pair), (1, 8, 1), (1, 8 // most, most)]:
        mesh = make_mesh(*sizes)
        with jax.set_mesh(mesh):
            layout = jax.tree.map(lambda x: x.sharding, abstract(lambda: small_model(config), mesh))
            sharded = jax.device_put(model, layout)
            parts = {x.size // x.addressable_shards[0].data.size for x in jax.tree.leaves(sharded)}
            assert max(parts) == sizes[1] * sizes[2]
            activation = jax.jit(lambda x: shard(x, "batch", "sequence", "mlp"))(x)
            assert activation.addressable_shards[0].data.shape == (8 // sizes[0] // sizes[1], 16, 64 // sizes[2])
            actual = value_and_gradient(sharded, *batch)
        for a, b in zip(jax.tree.leaves(actual), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
        print("same on", sizes)


def test_any_mesh_gives_what_one_device_gives():
    script = f"import {PACKAGE.name}.tests.test_model as test; test.compare_meshes()"
    process = run_python("-W", "error", "-c", script, devices=8)
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("same on") == 3


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((3, -1, 1), r"--mesh-data 3, --mesh-fsdp -1, .*--mesh-tensor 1: 8 devices do not divide"),
        ((2, 2, 1), r"--mesh-data 2, --mesh-fsdp 2, .*--mesh-tensor 1: 8 devices do not divide"),
        ((-1, -1, 1), "one of them may be -1"),
        ((1, 0, 1), "at least 1"),
    ],
)
def test_a_mesh_that_does_not_fit_is_named(sizes, message):
    with pytest.raises(InputError, match=message):
        make_mesh(*sizes, devices=jax.devices() * 8)


def test_a_parameter_that_does_not_divide_is_named():
    axes = make_mesh(1, 1, 1).axis_names
    mesh = jax.sharding.AbstractMesh(tuple(3 if axis == "fsdp" else 1 for axis in axes), axes)
    with pytest.raises(InputError, match=f"embed of size {SMALL.width} does not divide over --mesh-fsdp.*, 3"):
        abstract(small_model, mesh)
