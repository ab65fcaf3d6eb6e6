"""Every entry point of a package that serves can be traced: a verdict of `gen diff --against` is worth what this is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from generator.programs.verdicts import DECODING, EVALUATION, FLAGS, INITIAL, MESH, TRAINING

pytest.importorskip("jax")
PACKAGE = Path(__file__).parents[2] / "generated" / "llama2_cpu"


def test_nothing_is_undecided(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name, ignore=shutil.ignore_patterns("tests", "__pycache__"))
    command = [sys.executable, "-m", "generator.programs.trace", str(tmp_path), PACKAGE.name]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": FLAGS}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    programs = json.loads((tmp_path / "facts.json").read_text())["programs"]
    assert programs.keys() == {TRAINING, EVALUATION, INITIAL, DECODING}
    parts = {f"{entry}, {part}": facts for entry, found in programs.items() for part, facts in found.items()}
    assert not {part: facts for part, facts in parts.items() if "undecided" in facts} and any(MESH in x for x in parts)
