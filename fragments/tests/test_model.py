"""The model against plain sums: attention, rotation, packing, cached decoding, and any mesh against one device."""

import dataclasses
import functools
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from generator.roles import (
    PRESETS,
    REMAT,
    Cache,
    Config,
    Decoder,
    MeshError,
    abstract,
    attend,
    make_mesh,
    shard,
)

SMALL = dataclasses.replace(
    PRESETS["tiny"], dtype="float32", vocab_size=64, width=64, layers=2, heads=8, kv_heads=4, head_size=16, mlp_width=96
)


def random_tokens(shape: tuple[int, int], config: Config = SMALL) -> jax.Array:
    return jax.random.randint(jax.random.key(1), shape, 0, config.vocab_size)


@functools.partial(jax.jit, static_argnums=0)
def small_model(config: Config = SMALL) -> Decoder:
    return Decoder(dataclasses.replace(config, init_std=0.2), nnx.Rngs(0))


@jax.jit
def logits(model, tokens, positions=None, segment_ids=None):
    return model(tokens, positions, segment_ids)


def attend_slowly(q, k, v, segment_ids):
    """Attention by its definition: one query at a time, over the keys it may see."""
    B, T, N, H = q.shape
    out = np.zeros((B, T, N, H))
    for b, t, n in np.ndindex(B, T, N):
        kv_head = n // (N // k.shape[2])
        seen = [s for s in range(t + 1) if segment_ids[b, s] == segment_ids[b, t]]
        scores = k[b, seen, kv_head] @ q[b, t, n] / np.sqrt(H)
        weights = np.exp(scores - scores.max())
        out[b, t, n] = weights / weights.sum() @ v[b, seen, kv_head]
    return out


@pytest.mark.parametrize(("length", "kv_heads"), [(1, 2), (3, 4), (37, 2), (37, 1)])
def test_attention_is_its_definition(length, kv_heads):
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, length, heads, 8)).astype(np.float32) for heads in (4, kv_heads, kv_heads))
    packed = np.sort(rng.integers(1, 4, (2, length)), axis=1)
    for segment_ids in packed, np.ones_like(packed):
        np.testing.assert_allclose(
            jax.jit(attend)(q, k, v, segment_ids), attend_slowly(q, k, v, segment_ids), atol=1e-5
        )
    np.testing.assert_allclose(jax.jit(attend)(q, k, v, None), attend_slowly(q, k, v, np.ones_like(packed)), atol=1e-5)


def test_the_gradient_of_attention_is_its_slope():
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=(1, 19, heads, 8)) for heads in (4, 2, 2)]
    directions = [rng.normal(size=x.shape) for x in inputs]
    weights, segment_ids = rng.normal(size=(1, 19, 4, 8)), np.array([[1] * 8 + [2] * 10 + [0]])

    def slowly(h):
        return np.sum(weights * attend_slowly(*(x + h * d for x, d in zip(inputs, directions)), segment_ids))

    gradient = jax.jit(jax.grad(lambda x: jnp.sum(weights * attend(*x, segment_ids))))
    slope = sum(np.sum(g * d) for g, d in zip(gradient([x.astype(np.float32) for x in inputs]), directions))
    np.testing.assert_allclose(slope, (slowly(1e-5) - slowly(-1e-5)) / 2e-5, rtol=1e-4)


def test_attention_in_bfloat16_stays_near_float32():
    q, k, v = jax.random.normal(jax.random.key(0), (3, 1, 64, 4, 16))
    rounded = attend(*(x.astype(jnp.bfloat16) for x in (q, k, v)), None)
    assert rounded.dtype == jnp.bfloat16
    np.testing.assert_allclose(rounded.astype(jnp.float32), attend(q, k, v, None), atol=0.05)


def test_packed_documents_give_what_each_gives_alone():
    model, lengths = small_model(), [5, 11, 5]
    tokens = random_tokens((1, sum(lengths) + 3))  # three of padding
    segment_ids = jnp.repeat(jnp.array([1, 2, 3, 0]), jnp.array([*lengths, 3]))[None]
    positions = jnp.concatenate([jnp.arange(n) for n in [*lengths, 3]])[None]
    packed = logits(model, tokens, positions, segment_ids)
    start = 0
    for length in lengths:
        alone = logits(model, tokens[:, start : start + length])
        np.testing.assert_allclose(packed[:, start : start + length], alone, atol=1e-4)
        start += length


def test_a_token_changes_only_what_follows_in_its_document():
    model, tokens = small_model(), random_tokens((2, 12))
    segment_ids = jnp.array([[1] * 7 + [2] * 5] * 2)
    before = logits(model, tokens, None, segment_ids)
    after = logits(model, tokens.at[0, 3].add(1), None, segment_ids)
    changed = np.any(np.asarray(before != after), axis=-1)
    expected = np.zeros((2, 12), bool)
    expected[0, 3:7] = True
    np.testing.assert_array_equal(changed, expected)


def test_cached_decoding_gives_the_full_pass():
    model, tokens = small_model(), random_tokens((2, 9))
    shape = (SMALL.layers, 2, 12, SMALL.kv_heads, SMALL.head_size)
    cache = Cache(jnp.zeros(shape), jnp.zeros(shape))
    hidden = jax.jit(lambda model, tokens, positions, cache: model.hidden(tokens, positions, cache=cache))
    pieces = []
    for start, stop in [(0, 4), (4, 5), (5, 9)]:  # a prompt, one token, several
        positions = jnp.broadcast_to(jnp.arange(start, stop), (2, stop - start))
        x, cache = hidden(model, tokens[:, start:stop], positions, cache)
        pieces.append(model.embedding.logits(x))
    np.testing.assert_allclose(jnp.concatenate(pieces, axis=1), logits(model, tokens), atol=1e-4)


def packed_batch(config: Config) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Tokens, positions and segment ids of eight rows of two documents."""
    positions = jnp.concatenate([jnp.arange(9), jnp.arange(7)])
    segment_ids = jnp.array([1] * 9 + [2] * 7)
    return random_tokens((8, 16), config), jnp.tile(positions, (8, 1)), jnp.tile(segment_ids, (8, 1))


@jax.jit
@jax.value_and_grad
def value_and_gradient(model, tokens, positions, segment_ids):
    return jnp.mean(model(tokens, positions, segment_ids) ** 2)


def test_what_is_computed_again_changes_nothing():
    values = [
        jax.tree.leaves(value_and_gradient(small_model(dataclasses.replace(SMALL, remat=remat)), *packed_batch(SMALL)))
        for remat in REMAT
    ]
    for other in values[1:]:
        for a, b in zip(values[0], other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


MESHES = [(2, 2, 2), (1, 8, 1), (1, 1, 8)]


def compare_meshes():
    """On 8 devices: each mesh gives the loss and the gradient that one device gives; `shard` lays arrays out."""
    config = dataclasses.replace(SMALL, heads=16, kv_heads=8, head_size=8)
    x = jnp.ones((8, 16, 64))
    assert shard(x, "batch", "sequence", "mlp") is x  # no mesh is set
    batch, model = packed_batch(config), small_model(config)
    expected = jax.tree.leaves(value_and_gradient(model, *batch))
    for sizes in MESHES:
        mesh = make_mesh(*sizes)
        with jax.set_mesh(mesh):
            layout = jax.tree.map(lambda x: x.sharding, abstract(lambda: small_model(config), mesh))
            sharded = jax.device_put(model, layout)
            kernel = sharded.layers.mlp.gate.kernel[...]
            assert kernel.size == kernel.addressable_shards[0].data.size * sizes[1] * sizes[2]
            activation = jax.jit(lambda x: shard(x, "batch", "sequence", "mlp"))(x)
            assert activation.addressable_shards[0].data.shape == (8 // sizes[0] // sizes[1], 16, 64 // sizes[2])
            actual = value_and_gradient(sharded, *batch)
        for a, b in zip(jax.tree.leaves(actual), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
        print("same on", sizes)


def test_any_mesh_gives_what_one_device_gives():
    package = Path(__file__).parents[1]
    module = f"{package.name}.tests.{Path(__file__).stem}"
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import {module} as test; test.compare_meshes()"],
        env=os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"},
        cwd=package.parent,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines() == [f"same on {sizes}" for sizes in MESHES]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((3, -1, 1), "--mesh-data 3, --mesh-fsdp -1, --mesh-tensor 1: 8 devices do not divide"),
        ((2, 2, 1), "--mesh-data 2, --mesh-fsdp 2, --mesh-tensor 1: 8 devices do not divide"),
        ((-1, -1, 1), "one of them may be -1"),
        ((1, 0, 1), "at least 1"),
    ],
)
def test_a_mesh_that_does_not_fit_is_named(sizes, message):
    with pytest.raises(MeshError, match=message):
        make_mesh(*sizes, devices=jax.devices() * 8)


def test_a_parameter_that_does_not_divide_is_named():
    mesh = jax.sharding.AbstractMesh((1, 3, 1), ("data", "fsdp", "tensor"))
    with pytest.raises(MeshError, match="embed of size 64 does not divide over --mesh-fsdp 3"):
        abstract(small_model, mesh)
