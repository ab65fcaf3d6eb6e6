"""Compilation for absent GPUs, by XLA's own compiler."""

import importlib.util
import json
import subprocess

import pytest

from generator.language import requires
from generator.language.roles import PACKAGE, SMALL, run_python

requires("compile_gpu", "compile/predicted")

HAS_PLUGIN = any(importlib.util.find_spec(f"jax_cuda{version}_plugin") for version in (12, 13))


def run(*flags: str) -> subprocess.CompletedProcess:
    return run_python("-m", f"{PACKAGE.name}.compile", "--layers", str(SMALL.layers), *flags)


@pytest.mark.skipif(not HAS_PLUGIN, reason="needs the compiler: pip install '.[cuda]'")
def test_compiles_the_step_for_gpus_that_are_not_here(tmp_path):
    process = run("--devices", "16", "--batch-per-device", "1", "--json", "--hlo", str(tmp_path / "step.hlo"))
    assert process.returncode == 0, process.stderr
    assert "tiny for 16 h100" in process.stderr and "GiB: fits h100 with 73.6 GiB" in process.stderr
    found = json.loads(process.stdout)  # and nothing else
    parts = [found[name] for name in ("products", "memory", "kernels", "exposed")]
    assert found["devices"] == 16 and found["seconds"] == pytest.approx(sum(parts)) and min(parts) > 0
    program = (tmp_path / "step.hlo").read_text()
    assert "fmha" in program and "all-gather-start" in program


@pytest.mark.skipif(not HAS_PLUGIN, reason="needs the compiler: pip install '.[cuda]'")
def test_what_does_not_fit_ends_in_a_verdict():
    process = run("--devices", "1", "--batch-per-device", "1", "--width", "16384", "--mlp-width", "131072", "--json")
    assert process.returncode == 3 and "Traceback" not in process.stderr, process.stderr
    assert "DOES NOT FIT h100 with 73.6 GiB" in process.stderr and "a --remat that keeps less" in process.stderr
    assert json.loads(process.stdout)["bytes"] > 73.6 * 2**30


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--chip", "v99"], "--chip v99 --devices 8: there is no such machine: give a100, h100, h200, b200"),
        (["--devices", "12"], "at most 8 devices or a multiple of 8"),
        (["--devices", "0"], "at most 8 devices or a multiple of 8"),
    ],
)
def test_machines_that_there_are_not(flags, problem):
    process = run(*flags)
    assert process.returncode == 2 and "Traceback" not in process.stderr
    assert problem in process.stderr
