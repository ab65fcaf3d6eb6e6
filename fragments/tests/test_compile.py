"""Compilation for absent TPUs, by libtpu's own compiler."""

import re
import subprocess

import pytest
from jax.experimental import topologies

from generator.language.roles import PACKAGE, SMALL, InputError, run_python, topology_mesh

FLAGS = f"--layers {SMALL.layers} --batch-per-device 1 --mesh-data 1 --mesh-fsdp -1"


def run(*flags: str) -> subprocess.CompletedProcess:
    return run_python("-m", f"{PACKAGE.name}.compile", *FLAGS.split(), *flags)


def test_compiles_the_step_for_a_slice_that_is_not_here(tmp_path):
    pytest.importorskip("libtpu", reason="needs libtpu: pip install '.[tpu]'")
    process = run("--topology", "v5e:2x2", "--hlo", str(tmp_path / "step.hlo"))
    assert process.returncode == 0 and "TPU_WORKER_HOSTNAMES" not in process.stderr, process.stderr
    assert "tiny for 4 v5e" in process.stdout and "GiB: fits v5e with 16 GiB" in process.stdout
    program = (tmp_path / "step.hlo").read_text()
    # as many backward kernels as forward ones: the saved attention is not recomputed
    kernels = [line for line in program.splitlines() if "tpu_custom_call" in line and " custom-call(" in line]
    forward, backward = (sum(name in line for line in kernels) for name in ("splash_mha_fwd", "splash_mha_dkv"))
    assert forward == backward > 0
    assert "all-gather" in program and "bf16" in program


def test_a_batch_is_said_once():
    pytest.importorskip("libtpu", reason="needs libtpu: pip install '.[tpu]'")
    process = run("--topology", "v5e:2x2", "--batch-size", "8")
    assert process.returncode == 2 and "Traceback" not in process.stderr
    assert "--batch-size and --batch-per-device say the same" in process.stderr
    process = run_python("-m", f"{PACKAGE.name}.compile", *"--topology v5e:2x2 --batch-size 6".split())
    assert process.returncode == 2 and "Traceback" not in process.stderr
    assert "--batch-size 6: must be a multiple of accumulation x data x fsdp" in process.stderr


@pytest.mark.parametrize(
    "sizes, problem",
    [
        ("--vocab-size 8000000 --width 1024 --layers 1", r"Allocation \(size=\d+\) would exceed memory \(size=\d+\)"),
        ("--width 16384 --mlp-width 65536", "Ran out of memory .*hbm"),
    ],
    ids=["a parameter", "all"],
)
def test_what_does_not_fit_ends_in_a_verdict(sizes, problem):
    pytest.importorskip("libtpu", reason="needs libtpu: pip install '.[tpu]'")
    process = run("--topology", "v5e:2x2", *sizes.split())
    assert process.returncode == 3 and "Traceback" not in process.stderr, process.stderr
    assert re.search(f"DOES NOT FIT v5e with 16 GiB: {problem}", process.stderr), process.stderr
    assert "a --remat that keeps less" in process.stderr


@pytest.mark.parametrize(
    ("topology", "slices", "count", "wrapped"),
    [
        ("v4:4x4x4", 1, 64, [True] * 3),
        ("v5p:2x2x4", 1, 16, [False] * 3),
        ("v5p:4x4x8", 2, 256, [True] * 3),
        ("v5e:8x16", 1, 128, [False, True, False]),
        ("v6e:2x2", 1, 4, [False] * 3),
        ("tpu7x:4x4x4", 1, 128, [True] * 3),  # two devices a chip
    ],
)
def test_slices_have_the_devices_and_the_links_that_they_have(topology, slices, count, wrapped, monkeypatch):
    pytest.importorskip("libtpu", reason="needs libtpu: pip install '.[tpu]'")
    asked = {}
    describe = topologies.get_topology_desc

    def spy(*names, **options):
        asked.update(options)
        return describe(*names, **options)

    monkeypatch.setattr(topologies, "get_topology_desc", spy)
    devices = topology_mesh(SMALL, topology, slices).devices.flat
    assert len(devices) == count and asked["wrap"] == wrapped
    assert len({getattr(device, "slice_index", 0) for device in devices}) == slices


def test_an_unknown_chip_is_named():
    process = run("--topology", "v99:2x2")
    assert process.returncode == 2 and "Traceback" not in process.stderr
    wanted = (
        "give v4, v5e, v5p, v6e, tpu7x with its lengths, such as v5p:8x8x4 or v5e:16x16, and --slices of at least 1"
    )
    assert f"--topology v99:2x2 --slices 1: there is no such slice: {wanted}" in process.stderr


@pytest.mark.parametrize(
    ("topology", "slices"),
    [("v5e", 1), ("v5e:axb", 1), ("v5e:2x2", 0), ("v5e:2x2", -1), ("v5p:2x2", 1), ("v5e:2x2x1", 1), ("v5e:32x32", 1)],
)
def test_slices_that_there_are_not(topology, slices):
    with pytest.raises(InputError, match=f"--topology {topology} --slices {slices}: there is no such slice: give v4, "):
        topology_mesh(SMALL, topology, slices)


def test_a_mesh_that_does_not_fit_is_named():
    pytest.importorskip("libtpu", reason="needs libtpu: pip install '.[tpu]'")
    process = run("--topology", "v5e:2x2", "--mesh-tensor", "3")
    assert process.returncode == 2 and "4 devices do not divide" in process.stderr
