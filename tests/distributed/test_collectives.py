"""What the devices send each other in a compiled step, against the table that the way of sharding promises.

Data parallelism sums each gradient once. FSDP (ZeRO-3, Rajbhandari et al. 2020, arXiv 1910.02054, section 7.2) gathers
each split parameter for the forward and for the backward pass, and sums each gradient once. Tensor parallelism
(Shoeybi et al. 2019, arXiv 1909.08053, section 3) sums activations after attention and after the feed-forward, forward
and, where they are recomputed, again; backward before each product that is split by columns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import jax
import pytest
from families.weaving import LIBRARY, write
from selected import mostly_slow

from distributed.jobs import environment
from generator.weaver import weave

COUNT = """
import collections, dataclasses, json, math, sys
from collectives import sends
from llama2_cpu import data, parallel
from llama2_cpu import step as train
from llama2_cpu.config import PRESETS

sizes = dict(layers=3, width=64, heads=8, kv_heads=8, head_size=8, mlp_width=96, vocab_size=264)
run = dict(context_length=48, sequence_length=48, batch_size=16, remat="full", dtype="float32")
config = dataclasses.replace(PRESETS["tiny"], **sizes, **run)
tables = []
for mesh in json.loads(sys.argv[1]):
    mesh = parallel.make_mesh(*mesh)
    with train.jax.set_mesh(mesh):
        state = parallel.abstract(lambda: train.new_state(config), mesh)
        text = train.compile_step(state, data.abstract_batch(config, mesh), config).as_text()
    table = collections.Counter()
    for shape, kind in sends(text):
        if "," in shape:  # scalars, vectors and integers (norms, positions, tokens) weigh nothing
            table[kind] += math.prod(map(int, shape.split(",")))
    tables.append(table)
print(json.dumps(tables))
"""
LAYERS, TOKENS, WIDTH, INNER, VOCABULARY = 3, 16 * 48, 64, 96, 264
MATRICES = LAYERS * (4 * WIDTH * WIDTH + 3 * WIDTH * INNER)
TABLE = VOCABULARY * WIDTH  # of the embedding; the head is as large
X = TOKENS * WIDTH  # numbers in the residual stream of the whole batch
# forward 2; again for the backward pass 1, as the last sum of a layer is of no use there; backward query, key, value,
# gate, up; the embedding's lookup, and the head's gradient
SUMS = LAYERS * (2 + 1 + 5) + 2
LOSS = 3 * TOKENS  # the greatest logit, the normalizer, and the target's logit
PROMISED = {
    (8, 1, 1): {"all-reduce": MATRICES + 2 * TABLE},
    # the head's gradient goes to its owners alone, whose parts are counted. The embedding is not gathered: the width of
    # its rows, and of their gradients, goes over to the tokens'
    (1, 8, 1): {
        "all-gather": 2 * MATRICES + TABLE,
        "all-reduce": MATRICES,
        "reduce-scatter": TABLE // 8,
        "all-to-all": 2 * X // 8,
    },
    (1, 1, 8): {"all-reduce": SUMS * X + LOSS},
    # products: each does its share of the batch or of the matrices
    (2, 1, 4): {"all-reduce": (MATRICES + 2 * TABLE) // 4 + (SUMS * X + LOSS) // 2},
    (1, 4, 2): {
        "all-gather": (2 * MATRICES + TABLE) // 2,
        "all-reduce": MATRICES // 2 + (SUMS * X + LOSS) // 4 + TABLE // 4,
        "reduce-scatter": TABLE // 8,
        "all-to-all": 2 * X // 4,
    },
    # over data what is left of each gradient; that of the embedding whole, for which XLA gathers activations
    (2, 4, 1): {
        "all-gather": 2 * MATRICES + TABLE + X // 4,
        "all-reduce": MATRICES + (MATRICES + TABLE) // 4 + TABLE,
        "reduce-scatter": TABLE // 4,
        "all-to-all": X // 8,
    },
}
if jax.__version_info__[:2] > (0, 10):  # whose compiler lays out the embedding's gradient otherwise
    PROMISED[1, 4, 2] |= {
        "all-reduce": MATRICES // 2 + (SUMS * X + LOSS) // 4 + TABLE // 2,
        "all-to-all": 2 * X // 8,
        "collective-permute": TABLE // 8,
    }
    PROMISED[2, 4, 1] = {
        "all-gather": 2 * MATRICES + TABLE,
        "all-reduce": MATRICES + (MATRICES + 2 * TABLE) // 4,
        "reduce-scatter": TABLE // 4,
        "all-to-all": 2 * X // 8,
    }


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict:
    """Of a trainer without parts: sequence_parallel has another table (families/test_sequence_axes.py)."""
    meshes, folder = json.dumps([*PROMISED]), tmp_path_factory.mktemp("plain")
    write(weave("llama2", "cpu", LIBRARY, parts=()), folder)
    settings = environment(tmp_path_factory.mktemp("cache"), 1, 8)
    settings["PYTHONPATH"] = f"{folder}{os.pathsep}{settings['PYTHONPATH']}"
    process = subprocess.run([sys.executable, "-c", COUNT, meshes], env=settings, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return dict(zip(PROMISED, json.loads(process.stdout), strict=True))


@pytest.mark.parametrize("mesh", PROMISED, ids=str)
def test_devices_send_what_their_mesh_promises(found, mesh):
    assert found[mesh] == PROMISED[mesh]


EXPERTS = """
import dataclasses, json, sys
from collectives import sends
from qwen3_moe_cpu import data, parallel
from qwen3_moe_cpu import step as train
from qwen3_moe_cpu.config import PRESETS

sizes = dict(layers=2, width=64, heads=8, kv_heads=8, head_size=8, expert_width=96, experts=16, vocab_size=264)
run = dict(context_length=48, sequence_length=48, batch_size=16, remat="full", dtype="float32")
config = dataclasses.replace(PRESETS["tiny"], **sizes, **run)
found = []
for mesh in json.loads(sys.argv[1]):
    copies, fsdp, expert, tensor = mesh
    mesh = parallel.make_mesh(copies, fsdp, tensor, expert=expert)
    with train.jax.set_mesh(mesh):
        state = parallel.abstract(lambda: train.new_state(config), mesh)
        text = train.compile_step(state, data.abstract_batch(config, mesh), config).as_text()
    found.append([(shape, kind) for shape, kind in sends(text) if kind in ("all-reduce", "reduce-scatter")])
print(json.dumps(found))
"""


FEWER = [(1, 1, 8, 1), (2, 1, 2, 2), (1, 2, 4, 1)]


@pytest.mark.parametrize("meshes", mostly_slow([FEWER, [(2, 1, 4, 1), (1, 8, 1, 1)]], FEWER))
def test_no_gradient_of_all_experts_is_summed_whole(tmp_path, meshes):
    """A device sums the gradients of its own experts alone: 16 experts of width 64 and inner width 96, two layers."""
    settings = environment(tmp_path, 1, 8)
    program = [sys.executable, "-c", EXPERTS, json.dumps(meshes)]
    process = subprocess.run(program, env=settings, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    for (_, fsdp, expert, tensor), found in zip(meshes, json.loads(process.stdout), strict=True):
        inner, width = 96 // tensor, 64 // fsdp
        # first to those that share the width of experts, then to those that share experts
        counts = [16] * (fsdp > 1) + [16 // expert] * (expert > 1)
        own = {shape for count in counts for shape in (f"{count},{width},{inner}", f"{count},{inner},{width}")}
        head = f"{64 // (fsdp * expert)},{264 // tensor}"
        scattered = [shape for shape, kind in found if kind == "reduce-scatter" and shape != head]
        assert set(scattered) == own and len(scattered) == 2 * 3 * len(counts)  # gate, up and down of each layer
        assert not {shape for shape, kind in found if kind == "all-reduce"} & {f"16,64,{inner}", f"16,{inner},64"}
