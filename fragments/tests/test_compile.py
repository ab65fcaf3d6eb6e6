"""Compilation for absent TPUs, by libtpu's own compiler."""

import subprocess

import pytest

from generator.roles import PACKAGE, SMALL, run_python

FLAGS = f"--layers {SMALL.layers} --batch-per-device 1 --mesh-data 1 --mesh-fsdp -1"


def run(*flags: str) -> subprocess.CompletedProcess:
    return run_python("-m", f"{PACKAGE.name}.compile", *FLAGS.split(), *flags)


def test_compiles_the_step_for_a_slice_that_is_not_here(tmp_path):
    pytest.importorskip("libtpu", reason="needs libtpu: pip install '.[tpu]'")
    process = run("--topology", "v5e:2x2", "--hlo", str(tmp_path / "step.hlo"))
    assert process.returncode == 0, process.stderr
    assert "tiny for 4 v5e" in process.stdout and "GiB: fits v5e with 16 GiB" in process.stdout
    program = (tmp_path / "step.hlo").read_text()
    # as many kernels backward as forward: the attention that was kept is not computed again
    kernels = [line for line in program.splitlines() if "tpu_custom_call" in line and " custom-call(" in line]
    forward, backward = (sum(name in line for line in kernels) for name in ("splash_mha_fwd", "splash_mha_dkv"))
    assert forward == backward > 0
    assert "all-gather" in program and "bf16" in program


def test_an_unknown_chip_is_named():
    process = run("--topology", "v99:2x2")
    assert process.returncode == 2 and "Traceback" not in process.stderr
    assert "--topology v99:2x2: v99 is not one of v4, v5e, v5p, v6e, tpu7x" in process.stderr


def test_a_mesh_that_does_not_fit_is_named():
    pytest.importorskip("libtpu", reason="needs libtpu: pip install '.[tpu]'")
    process = run("--topology", "v5e:2x2", "--mesh-tensor", "3")
    assert process.returncode == 2 and "4 devices do not divide" in process.stderr
