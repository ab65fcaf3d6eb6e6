"""Meshes of TPUs that are not here, of one slice and of several, and a step compiled for two slices."""

from __future__ import annotations

import subprocess
import sys

import pytest

from distributed.jobs import environment

pytest.importorskip("libtpu")

START = """
import dataclasses, importlib, os
os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
import jax
from jax.experimental import topologies
from llama2_tpu.errors import InputError
from llama2_tpu.parallel import abstract, make_mesh

def devices(name, **options):
    return list(topologies.get_topology_desc(platform="tpu", topology_name=name, **options).devices)
"""


def run(cache, program: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", START + program], env=environment(cache, 1, 1), capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_any_product_of_sizes_is_a_mesh_of_a_slice(tmp_path):
    output = run(
        tmp_path,
        """
chips = devices("v5p:8x8x4")
for sizes in (1, 128, 2), (2, 32, 4), (16, 8, 2), (1, 256, 1), (1, 1, 256), (4, 4, 16), (2, -1, 8):
    mesh = make_mesh(*sizes, chips)
    assert sorted(d.id for d in mesh.devices.flat) == sorted(d.id for d in chips)
    print(*(mesh.shape[axis] for axis in ("data", "fsdp", "tensor")))
try:
    make_mesh(3, 2, 2, chips)
except InputError as error:
    print(error)
""",
    ).splitlines()
    assert output[:-1] == ["1 128 2", "2 32 4", "16 8 2", "1 256 1", "1 1 256", "4 4 16", "2 16 8"]
    assert "--mesh-tensor 2: 256 devices do not divide" in output[-1]


def test_slices_are_parted_by_data_and_then_by_fsdp(tmp_path):
    output = run(
        tmp_path,
        """
chips = devices("v5e:4x4", num_slices=2)
for sizes in (2, 16, 1), (4, 4, 2), (1, 32, 1), (1, 2, 16):
    mesh = make_mesh(*sizes, chips).devices
    first, second = mesh.reshape(2, -1) if sizes[0] > 1 else mesh.swapaxes(0, 1).reshape(2, -1)
    print(*sizes, {d.slice_index for d in first}, {d.slice_index for d in second})
try:
    make_mesh(1, 1, 32, chips)
except InputError as error:
    print(error)
""",
    ).splitlines()
    assert output[:-1] == [f"{sizes} {{0}} {{1}}" for sizes in ("2 16 1", "4 4 2", "1 32 1", "1 2 16")]
    assert "--mesh-tensor 32: data x fsdp does not divide over 2 slices" in output[-1]


def test_a_step_compiles_for_two_slices(tmp_path):
    run(
        tmp_path,
        """
from llama2_tpu.config import PRESETS
from llama2_tpu.data import abstract_batch
from llama2_tpu.step import compile_step, new_state
config = dataclasses.replace(PRESETS["tiny"], layers=2, width=256, heads=2, kv_heads=2, head_size=128, batch_size=8)
mesh = make_mesh(2, 4, 1, devices("v5e:2x2", num_slices=2))
with jax.set_mesh(mesh):
    compiled = compile_step(abstract(lambda: new_state(config), mesh), abstract_batch(config, mesh), config)
assert "all-reduce" in compiled.as_text() or "send" in compiled.as_text()
""",
    )
