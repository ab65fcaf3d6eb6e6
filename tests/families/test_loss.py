"""The loss in chunks, over devices, against optax's of all logits on one."""

from __future__ import annotations

import dataclasses
import math
import re

import jax
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec
from selected import mostly_slow

from families.devices import MESHES, on_eight_devices
from families.weaving import batch_of, variant

VOCABULARY, WIDTH, ROWS, LENGTH = 208, 48, 8, 11


def compare_losses(package) -> None:
    sizes = dict(layers=2, width=WIDTH, vocab_size=VOCABULARY, heads=8, kv_heads=8, head_size=4, batch_size=ROWS)
    config = dataclasses.replace(package.config.PRESETS["tiny"], **sizes, init_std=0.2, dtype="float32")
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, (ROWS, LENGTH + 1), dtype=np.int32)
    batch = batch_of(tokens) | {"weights": np.random.default_rng(1).random((ROWS, LENGTH)).astype(np.float32)}

    def whole(model, batch):
        logits = model(batch["tokens"], batch["positions"], batch["segment_ids"])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"])
        return (losses * batch["weights"]).sum()

    model = package.model.Decoder(config, nnx.Rngs(0))
    if hasattr(model.embedding, "head_bias"):
        model.embedding.head_bias.set_value(np.random.default_rng(2).standard_normal(VOCABULARY, np.float32))
    expected = jax.tree.leaves(jax.jit(jax.value_and_grad(whole))(model, batch))
    # chunks of at most 4 tokens, or of 8 where 2 devices share the vocabulary; all at once
    for held, meshes in (4 * VOCABULARY, MESHES), (2**29, MESHES[:1]):
        changed = dataclasses.replace(config, logits_per_chunk=held)
        loss = jax.value_and_grad(lambda model, batch, config=changed: package.step.loss(model, batch, config)[0])
        for sizes in meshes:
            mesh = package.parallel.make_mesh(*sizes)
            with jax.set_mesh(mesh):
                layout = package.parallel.abstract(lambda: package.model.Decoder(config, nnx.Rngs(0)), mesh)
                sharded = jax.device_put(model, jax.tree.map(lambda x: x.sharding, layout))
                rows = jax.device_put(batch, NamedSharding(mesh, PartitionSpec(package.parallel.RULES["batch"])))
                compiled = jax.jit(loss).lower(sharded, rows).compile()
                actual = jax.tree.leaves(compiled(sharded, rows))
            for ours, theirs in zip(actual, expected, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * abs(theirs).max())
            program, (data, fsdp, tensor) = compiled.as_text(), sizes
            shapes = [[int(x) for x in shape.split(",")] for shape in re.findall(r"f32\[([\d,]+)\]", program)]
            share, logits = VOCABULARY // tensor, ROWS // (data * fsdp) * LENGTH * VOCABULARY // tensor
            held_whole = any(share in shape and math.prod(shape) == logits for shape in shapes)
            summed = [sum_of for sum_of in sums(program) if sorted(sum_of) == sorted((WIDTH, share))]
            print(sizes, "all logits at a time" if held_whole else "chunks", summed if fsdp > 1 else "")


def sums(program: str) -> list[list[int]]:
    """Shapes of the matrices that a shard_map's devices all-reduce."""
    found = re.findall(r"= \(?(.*?)\)? all-reduce(?:-start)?\(.*op_name=\"[^\"]*shard_map", program)
    return [[*map(int, dims)] for shapes in found for dims in re.findall(r"f32\[(\d+),(\d+)\]", shapes)]


# a head of its own; tied, with a bias, its logits capped; with a product that has a gradient of its own
@pytest.mark.parametrize(
    ("family", "target", "more"),
    mostly_slow(
        [("llama2", "cpu", ()), ("gemma2", "cpu", ("model/head_bias",)), ("llama2", "gpu", ("model/head_bias",))],
        ("gemma2", "cpu", ("model/head_bias",)),
    ),
)
def test_chunks_over_devices(family, target, more, tmp_path):
    """No device holds all logits; of the head's gradient it sums its own part alone."""
    package = variant(family, more, tmp_path, target)
    whole, *chunks = (
        "(2, 2, 2) all logits at a time []",
        "(2, 2, 2) chunks []",
        "(1, 8, 1) chunks []",
        "(1, 1, 8) chunks ",
    )
    assert on_eight_devices(compare_losses, package) == [*chunks, whole]
