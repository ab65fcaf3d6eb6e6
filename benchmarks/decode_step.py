# ruff: noqa: E402
"""Compiles a decode step for TPUs that are not here, and reports the least that it has to read.

python benchmarks/decode_step.py PRESET TOPOLOGY [--sequences N] [--length TOKENS] [--int8-kv-cache] [--hlo FILE]

PRESET of llama2_tpu, such as 7b; TOPOLOGY as for its compile command, such as v5p:2x2x1: all its chips share the heads.
Prints the bytes of weights and of the KV cache that a chip holds for so many sequences of that length, which a step
reads at least once, and the time that takes at the published bandwidth; and what the compiled program needs beside its
arguments. The compiler's estimates of cycles are in the program's text.
"""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
import sys
import tempfile
from pathlib import Path

SCRATCH = tempfile.TemporaryDirectory()
BUILD = [sys.executable, "-m", "generator", "build", "llama2", "--target=tpu", "--with", "serve", "--out", SCRATCH.name]
subprocess.run(BUILD, cwd=Path(__file__).resolve().parents[1], check=True, stdout=subprocess.DEVNULL)
sys.path.insert(0, SCRATCH.name)

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec
from llama2_tpu.compile import topology_mesh
from llama2_tpu.config import PRESETS
from llama2_tpu.device import Slots, StepInput, run, write
from llama2_tpu.engine import BIASES, EngineSettings
from llama2_tpu.model import Decoder
from llama2_tpu.pages import block_table_widths, empty_pages, layers_in_pool
from llama2_tpu.parallel import abstract
from llama2_tpu.sampling import Biases, SamplingMetadata

BANDWIDTH = {"v4": 1228e9, "v5e": 819e9, "v5p": 2765e9, "v6e": 1640e9}  # bytes a second of a chip, as published


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", choices=[*PRESETS])
    parser.add_argument("topology")
    parser.add_argument("--sequences", type=int, default=1)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--page-size", type=int, default=EngineSettings().page_size)
    parser.add_argument("--int8-kv-cache", action="store_true")
    parser.add_argument("--hlo", type=Path)
    given = parser.parse_args()
    config, B, S = PRESETS[given.preset], given.sequences, given.page_size
    mesh = topology_mesh(dataclasses.replace(config, mesh_data=1, mesh_fsdp=1, mesh_tensor=-1), given.topology, 1)

    def array(shape: tuple[int, ...], dtype: object, *axes: str | None) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, PartitionSpec(*axes)))

    with jax.set_mesh(mesh):
        model = abstract(lambda: Decoder(config, nnx.Rngs(0)), mesh)
        model = jax.tree.map(lambda x: x.update(dtype=config.dtype) if x.ndim > 1 else x, model)  # of layers' norms too
        width = block_table_widths(given.length, S)[-1]
        pool = jax.eval_shape(lambda: empty_pages(config, 1 + B * width, S, given.int8_kv_cache))[0]
        pages = jax.tree.map(lambda x: array(x.shape, x.dtype, None, "tensor"), pool)
        sequences = array((B + 1, given.length + 2), jnp.int32)
        biases = Biases(*(array((B + 1, BIASES), kind) for kind in (jnp.int32, jnp.float32, jnp.int32)))
        numbers, flags = array((B,), jnp.int32), array((B,), jnp.bool_)
        types = {"prompt": jnp.int32, "top_k": jnp.int32, "seed": jnp.uint32, "biases": jnp.int32}
        names = SamplingMetadata._fields
        sampling = SamplingMetadata(*(array((B,), types.get(name, jnp.float32)) for name in names))
        block_tables = array((B, width), jnp.int32)
        step = StepInput(numbers, numbers, numbers, flags, block_tables, array((), jnp.bool_), sampling)
        layers = layers_in_pool(config, 1 + B * width)
        compiled = run.lower(
            model, pages, pages, Slots(sequences, biases), layers, step, length=1, whole=False
        ).compile()
        # of the new tokens: [L, B, 1, K, H], and [L, B, 1, K] of scales
        new = jax.tree.map(
            lambda x: array((config.layers, B, 1, *x.shape[1::2]), x.dtype, None, None, None, "tensor"), pool
        )
        cache = layers._replace(key=new, value=new)
        writing = write.lower(pages, pages, cache, step, length=1).compile()
    chip = given.topology.partition(":")[0]
    weights = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(model)) / mesh.size
    held = 2 * sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(pages)) / mesh.size
    milliseconds = 1e3 * (weights + held) / BANDWIDTH[chip]
    print(f"{given.preset} on {mesh.size} {chip}, {B} sequences of {given.length} tokens, by chip:")
    print(f"weights {weights / 1e9:.2f} GB, keys and values {held / 1e9:.2f} GB: read once in {milliseconds:.2f} ms")
    for program, what in (compiled, "to sample tokens"), (writing, "to write to the KV cache"):
        print(f"beside them {program.memory_analysis().temp_size_in_bytes / 1e9:.2f} GB {what}")
    if given.hlo:
        given.hlo.write_text(compiled.as_text())
        given.hlo.with_suffix(".write.hlo").write_text(writing.as_text())


if __name__ == "__main__":
    main()
