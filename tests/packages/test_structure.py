"""Structure is chosen while weaving: what a package was not woven for it refuses, and an optimizer is a fragment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from generator.package.config import merge_fields, write_presets
from generator.recipe.library import Library
from generator.recipe.recipe import select
from generator.weaver import weave

ROOT = Path(__file__).resolve().parents[2]

REFUSAL = """
import sys
import transformers
from own_cpu.huggingface import load_hf
from own_cpu.data import InputError

sizes = dict(vocab_size=37, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, tie_word_embeddings=False)).save_pretrained(sys.argv[1])
try:
    load_hf(sys.argv[1])
except InputError as error:
    assert "tie_word_embeddings is false" in str(error) and "a package with an untied head" in str(error), error
else:
    raise AssertionError("an untied checkpoint was taken")
print("refused")
"""

MUON = """
import dataclasses
import jax, numpy as np
from own_cpu.config import PRESETS
from own_cpu.step import make_optimizer, new_state

sizes = dict(width=64, layers=2, heads=2, kv_heads=1, mlp_width=96, warmup_ratio=0.0, weight_decay=0.0)
config = dataclasses.replace(PRESETS["tiny"], **sizes)
state = new_state(config)
gradient = jax.tree.map(lambda x: jax.random.normal(jax.random.key(0), x.shape), state.model)
update, _ = make_optimizer(config).update(gradient, state.opt_state, state.model)
layer = jax.tree.map(lambda x: np.asarray(x[1]), update.layers)
# a matrix of a layer: all directions are as long, although those of its gradient are not
for name, rows in {"query": 64, "out": 64}.items():
    kernel = getattr(layer.attention, name).kernel[...]
    matrix = kernel.reshape(rows, -1)
    lengths = np.linalg.svd(matrix, compute_uv=False)
    assert lengths.max() < 2 * lengths.min(), (name, lengths)
raw = np.asarray(gradient.layers.attention.query.kernel[...])[1].reshape(64, -1)
assert np.linalg.svd(raw, compute_uv=False).min() * 20 < np.linalg.svd(raw, compute_uv=False).max()
# all else: the first step of Adam is the sign of the gradient; optax has it with Nesterov's momentum, which is longer
first = config.adam_b1 / (1 + config.adam_b1) + 1
ours, slope = update.norm.scale[...], gradient.norm.scale[...]
np.testing.assert_allclose(ours, -first * config.learning_rate * np.sign(slope), rtol=1e-2)
print("orthogonal")
"""


LEFT_OVER = """
import dataclasses
from own_cpu.config import PRESETS
from own_cpu.errors import InputError
from own_cpu.trainer import train

try:
    train(dataclasses.replace(PRESETS["tiny"], layers=5))
except InputError as error:
    print(error)
"""


def run(architecture: str, program: str, folder: Path, base: str = "llama2") -> str:
    """Weaves an architecture on top of another and runs a program beside its package: the last line that it prints."""
    text = f'base = "{base}"\ntitle = "Own"\n{architecture}\n'
    package = weave("own", "cpu", Library(Library.read([ROOT]).files | {"templates/architectures/own.toml": text}))
    for path, content in package.files.items():
        (folder / package.name / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / package.name / path).write_text(content)
    settings = {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", program, str(folder / "checkpoint")]
    process = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout.splitlines()[-1]


@pytest.mark.slow
def test_another_structure_is_refused(tmp_path):
    pytest.importorskip("transformers", reason="needs torch and transformers")
    assert run('without = ["model/untied_head"]', REFUSAL, tmp_path) == "refused"


@pytest.mark.slow
def test_muon_makes_the_matrices_of_layers_orthogonal(tmp_path):
    """And the package's tests of AdamW's share, and of what decays, hold against torch."""
    assert run('fragments = ["train/muon"]', MUON, tmp_path) == "orthogonal"
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir=.", "-q", "own_cpu/tests/test_adamw.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "expected"),
    [("gemma2", "a multiple of the period, 2"), ("kimi_linear", "3 and a multiple of the period, 4")],
)
def test_layers_that_are_no_whole_period_are_refused(tmp_path, base, expected):
    assert run("", LEFT_OVER, tmp_path, base) == f"--layers 5: must be {expected}"


@pytest.mark.slow
def test_fewer_layers_than_stand_before_a_period_are_refused(tmp_path):
    assert run("", LEFT_OVER, tmp_path, "nemotron_h") == "--layers 5: must be at least 8"


def test_the_presets_of_every_architecture_are_complete():
    """Also of those of which no package is listed, and those taken over from a base."""
    library = Library.read([ROOT])
    for name in library.architectures():
        recipe = select(name, "cpu", library)
        write_presets(recipe, merge_fields(recipe))
