"""Sequences that devices share: context and sequence parallelism against one device, and the Splash kernel's masks."""

from __future__ import annotations

import collections
import dataclasses
import importlib
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collectives import sends
from flax import nnx
from selected import mostly_slow

from families.devices import bound_of, on_eight_devices
from families.weaving import batch_of, woven

LENGTH = 32
DENSE = {"context": 2, "tensor": 2}, {"fsdp": 2, "context": 4}  # data takes the devices left
SPARSE = {"context": 2, "expert": 4}, {"fsdp": 2, "context": 2, "expert": 2}, {"context": 2, "tensor": 2, "expert": 2}


def compare_steps(package) -> None:
    """Takes three optimizer steps on packed documents, on each mesh and on one device."""
    tiny = package.config.PRESETS["tiny"]
    sizes = dict(vocab_size=264, sequence_length=LENGTH, batch_size=8, accumulation=1, gradient_dtype="float32")
    sizes |= {"window": 8} if hasattr(tiny, "window") else {}  # less than a document
    # Adam's update is then a smooth function of the gradient: its sign would be one of rounding
    run = dict(dtype="float32", learning_rate=0.01, warmup_ratio=0.0, max_gradient_norm=1e9, adam_epsilon=0.1)
    config = dataclasses.replace(tiny, **sizes, **run)
    tokens = np.random.default_rng(0).integers(0, 256, (3, 8, LENGTH + 1), dtype=np.int32)
    batches = [batch_of(each, [13, 12]) for each in tokens]  # and 7 tokens of padding
    data = importlib.import_module(f"{package.model.__package__}.data")

    def train(devices, fsdp=1, tensor=1, **others):
        copies = len(devices) // math.prod((fsdp, tensor, *others.values()))
        mesh = package.parallel.make_mesh(copies, fsdp, tensor, devices, **others)
        abstract = data.abstract_batch(config, mesh)
        with jax.set_mesh(mesh):
            state = package.step.create_state(config, mesh)
            step = package.step.compile_step(state, abstract, config)
            losses = []
            for batch in batches:
                placed = {name: jax.device_put(batch[name], x.sharding) for name, x in abstract.items()}
                state, metrics = step(state, placed)
                losses.append(metrics["train/loss"])
            return [np.asarray(x) for x in (*losses, *jax.tree.leaves(nnx.pure(state.model)))]

    expected = train(jax.devices()[:1])
    heads = getattr(config, "kv_heads", 4)  # none in latent attention
    meshes = SPARSE if hasattr(config, "mesh_expert") else DENSE
    bound = bound_of(package)
    for mesh in (mesh for mesh in meshes if heads % mesh.get("tensor", 1) == 0):
        for ours, theirs in zip(train(jax.devices(), **mesh), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=bound * abs(theirs).max())
        print("equal", mesh)


@pytest.mark.parametrize(
    "family", mostly_slow(["llama2", "qwen3_moe", "gemma3", "llama4", "deepseek_v3", "gpt_oss"], "llama2")
)
def test_any_mesh_gives_what_one_device_gives(family, tmp_path):
    """With windows, chunks, latents, sinks and experts: families, dense and sparse."""
    found = on_eight_devices(compare_steps, woven(family, "cpu", tmp_path))
    assert len(found) == {"llama2": 2, "gemma3": 1}.get(family, 3)


LAYERS, TOKENS, WIDTH, INNER, VOCABULARY = 3, 16 * 48, 64, 96, 264
MATRICES = LAYERS * (4 * WIDTH * WIDTH + 3 * WIDTH * INNER)
TABLE = VOCABULARY * WIDTH  # of the embedding; the head is as large
X = TOKENS * WIDTH  # numbers in the residual stream of the whole batch; in all keys, and in all values
# by the axis of 8 devices: what a step sends with remat full. A layer gathers keys and values twice, and sums the
# gradient of each once; parameters are sharded and summed as by fsdp
PROMISED = {
    "context": {
        "all-gather": 2 * MATRICES + TABLE + LAYERS * 4 * X,
        "all-reduce": MATRICES + LAYERS * 2 * X,
        "reduce-scatter": TABLE // 8,
        "all-to-all": 2 * X // 8,
    },
    # sums as tensor parallelism alone has (distributed/test_collectives.py), of which a device keeps a part; it gathers
    # the tokens for two products forward, again, and backward the gradients of their outputs; and for embedding and loss
    "tensor": {"all-reduce": (LAYERS * 8 + 2) * X + 3 * TOKENS, "all-gather": (LAYERS * 6 + 2) * X},
}


def compare_collectives(package) -> None:
    """Counts the numbers that a step sends, by kind."""
    sizes = dict(layers=LAYERS, width=WIDTH, heads=8, kv_heads=8, head_size=8, mlp_width=INNER, vocab_size=VOCABULARY)
    run = dict(context_length=48, sequence_length=48, batch_size=16, remat="full", dtype="float32")
    config = dataclasses.replace(package.config.PRESETS["tiny"], **sizes, **run)
    data = importlib.import_module(f"{package.model.__package__}.data")
    for axis, promised in PROMISED.items():
        mesh = package.parallel.make_mesh(1, 1, **{"tensor": 1, axis: 8})
        with jax.set_mesh(mesh):
            state = package.parallel.abstract(lambda: package.step.new_state(config), mesh)
            text = package.step.compile_step(state, data.abstract_batch(config, mesh), config).as_text()
        found = collections.Counter()
        for shape, kind in sends(text):
            if "," in shape:  # scalars, vectors and integers (norms, positions, tokens) weigh nothing
                found[kind] += math.prod(map(int, shape.split(",")))
        assert found == promised, (axis, found)
        print("equal", axis)


@pytest.mark.slow
def test_devices_send_what_their_axis_promises(tmp_path):
    assert len(on_eight_devices(compare_collectives, woven("llama2", "cpu", tmp_path))) == len(PROMISED)


def compare_kernels(package) -> None:
    """Attends with the Splash kernel, interpreted, where 2 and 4 devices share sequences of three documents."""
    for devices in 2, 4:
        length, rows = 256 * devices, 4 // devices
        keys = jax.random.split(jax.random.key(0), 5)
        q, k, v, into = (
            jax.random.normal(key, (rows, length, heads, 64)) for key, heads in zip(keys, (4, 2, 2, 4), strict=False)
        )
        segment_ids = jnp.sort(jax.random.randint(keys[4], (rows, length), 1, 4), axis=1)

        def attend(q, k, v, segment_ids=segment_ids, into=into):
            return (package.model.attend(q, k, v, segment_ids) * into).sum()

        def attend_densely(q, k, v, segment_ids=segment_ids, into=into, length=length):
            k, v = jnp.repeat(k, 2, axis=2), jnp.repeat(v, 2, axis=2)
            same = segment_ids[:, None, :, None] == segment_ids[:, None, None]
            visible = same & (jnp.arange(length)[:, None] >= jnp.arange(length))
            scores = jnp.where(visible, jnp.einsum("BTNH,BSNH->BNTS", q, k) / 8, -1e30)
            return (jnp.einsum("BNTS,BSNH->BTNH", jax.nn.softmax(scores), v) * into).sum()

        expected = jax.value_and_grad(attend_densely, (0, 1, 2))(q, k, v)
        with jax.set_mesh(package.parallel.make_mesh(1, rows, 2, context=devices)):
            actual = jax.jit(jax.value_and_grad(attend, (0, 1, 2)))(q, k, v)
        for ours, theirs in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=3e-6 * abs(theirs).max())
        print("equal", devices)
    mesh = package.parallel.make_mesh(1, 4, 1, context=2)
    data = importlib.import_module(f"{package.model.__package__}.data")
    config = dataclasses.replace(package.config.PRESETS["tiny"], sequence_length=768)
    with pytest.raises(package.errors.InputError, match="--sequence-length 768: must be a multiple of 512 with"):
        data.abstract_batch(config, mesh)


@pytest.mark.slow
def test_the_kernel_of_tpus_attends_over_devices(tmp_path):
    assert len(on_eight_devices(compare_kernels, woven("llama2", "tpu", tmp_path))) == 2
