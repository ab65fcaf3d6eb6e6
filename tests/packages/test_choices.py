"""Parts that decide on something, of which "all" takes none: their packages' own tests pass."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = {
    ("llama3", "cpu", "qlora"): "test_qlora",
    ("llama2", "cpu", "dora"): "test_adapter_file",
    ("qwen3_moe", "cpu", "lora"): "test_adapter_file",
    ("llama2", "cpu", "reward_model"): "test_train",
    ("llama2", "cpu", "fp8"): "test_low_precision",
    ("llama2", "cpu", "int8"): "test_low_precision",
    ("llama2", "gpu", "packed_attention"): "test_packed_attention",
    ("llama2", "trainium", "nki_attention"): "test_attend_nki",
}


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "target", "part"), TESTS)
def test_its_own_tests_pass(architecture, target, part, tmp_path):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    build = ["generator", "build", architecture, f"--target={target}", "--with", part, "--out", str(tmp_path)]
    subprocess.run([sys.executable, "-m", *build], cwd=ROOT, env=environment, check=True, capture_output=True)
    test = f"{architecture}_{target}/tests/{TESTS[architecture, target, part]}.py"
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir=.", "-q", "-W", "error", "-p", "no:xdist"]
    found = subprocess.run([*command, test], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout[-4000:]
