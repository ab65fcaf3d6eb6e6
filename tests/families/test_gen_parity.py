"""`gen parity`: what is as transformers has it holds, what is not fails by its name, and what cannot be compared is said."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from families.cases import SMALL
from generator.checkpoint.comparisons import (
    _compare_gradients,
)  # imports jax: gen parity leaves its devices as they are
from generator.commands.cli import gen

# comparisons imports jax, after which gen parity leaves the number of devices as it is
STRETCHED = '''"""Queries that are a thousandth too long."""

from generator.language import splice


@splice("Attention.heads", before="rope")
def _(q):
    q = q * 1.001
'''
EPSILON = '''"""Norms that add ten times as much to the mean of squares."""

from generator.language import splice


@splice("hf.complete")
def _(hf):
    hf["rms_norm_eps"] = 1e-5
'''
PAIRED = '''"""Vectors of two rows, whatever the batch."""

from generator.language import splice


@splice("Embedding.vectors")
def _(x):
    x = x.reshape(2, -1, x.shape[-1])
'''
WHOLE = '''"""A bias of the head, as long as the whole vocabulary."""

from generator.language import proceed, splice


@splice("Embedding.parameters")
def _(self, V):
    self.tokens = V


@splice("Embedding.logits")
def _(self, logits):
    proceed()
    logits = logits + jnp.zeros(self.tokens)
'''
MISSHAPEN = '''"""A table of one axis more than its layout in checkpoints has."""

from generator.language import splice


@splice("Embedding.parameters")
def _(self):
    self.table = nnx.Param(self.table[...][None], axes=(None, "vocab", "embed"))
'''
COARSE = 'base = "qwen3"\ntitle = "Qwen 3, wrong"\nfragments = ["model/epsilon"]\n'
WRONG = 'base = "llama2"\ntitle = "Llama 2, wrong"\nfragments = ["model/stretched"]\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A project with a wrong architecture, and a checkpoint in bf16."""
    monkeypatch.chdir(tmp_path)
    for path, text in {
        "gen.toml": 'generated = "generated"\n',
        "fragments/model/stretched.py": STRETCHED,
        "templates/architectures/wrong.toml": WRONG,
        "fragments/model/epsilon.py": EPSILON,
        "templates/architectures/coarse.toml": COARSE,
        "fragments/model/paired.py": PAIRED,
        "templates/architectures/paired.toml": WRONG.replace("stretched", "paired"),
        "fragments/model/whole.py": WHOLE,
        "templates/architectures/whole.toml": WRONG.replace("stretched", "whole"),
        "fragments/model/misshapen.py": MISSHAPEN,
        "templates/architectures/misshapen.toml": WRONG.replace("stretched", "misshapen"),
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL))
    model.to(torch.bfloat16).save_pretrained("hf")
    return tmp_path / "hf"


def run(*words: str, code: int):
    done = CliRunner().invoke(gen, ["parity", *words])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def test_a_checkpoint(folder):
    done = run("llama2", "hf", code=0)
    assert "llama2_cpu against llama of transformers: 21,664 parameters" in done.stderr
    assert "all 20 hold" in done.stdout and "FAILED" not in done.stdout
    assert "gradient of model.layers.*.self_attn.q_proj.weight" in done.stdout
    assert {path.name for path in folder.iterdir()} == {"config.json", "generation_config.json", "model.safetensors"}


def test_a_config_alone(folder):
    (folder / "model.safetensors").unlink()
    rows = json.loads(run("llama2", "hf", "--tokens=20", "--json", code=0).stdout)
    assert all(row["holds"] for row in rows) and len(rows) == 20


def test_what_differs_is_named(folder):
    rows = {row["what"]: row for row in json.loads(run("wrong", "hf", "--json", code=1).stdout)}
    assert not rows["logits"]["holds"] and not rows["cached decoding: log-probabilities"]["holds"]
    assert all(row["holds"] for what, row in rows.items() if what.startswith("round trip"))
    assert "\n  logits  " in (said := run("wrong", "hf", code=1).stdout) and " FAILED\n" in said


@pytest.mark.slow
def test_an_epsilon_of_norms_that_is_too_large(folder):
    """It moves logits by little more than rounding does."""
    (folder / "model.safetensors").unlink()
    (folder / "config.json").unlink()
    transformers.Qwen3Config(**SMALL, head_dim=8, rms_norm_eps=1e-6).save_pretrained(folder)
    assert all(row["holds"] for row in json.loads(run("qwen3", "hf", "--json", code=0).stdout))
    rows = {row["what"]: row for row in json.loads(run("coarse", "hf", "--json", code=1).stdout)}
    assert not rows["logits"]["holds"] and not rows["cached decoding: log-probabilities"]["holds"]


def test_what_was_compared_before_an_error_is_shown(folder):
    done = run("paired", "hf", "--json", code=2)
    rows = {row["what"]: row["holds"] for row in json.loads(done.stdout)}
    assert rows["logits"] and rows["round trip: tensors of other bytes"] and "cached decoding: other tokens" not in rows
    assert "error: hf: paired_cpu could not be compared in all:\n  cached decoding: " in done.stderr
    assert " at fragments/" in done.stderr and "Traceback" not in done.stderr


def test_a_layout_of_other_axes(folder):
    said = run("misshapen", "hf", code=2).stderr
    assert "error: hf: misshapen_cpu does not load it: EinopsError: " in said


def test_what_has_no_gradient_may_be_lacking():
    rows = _compare_gradients({"b": np.ones(2)}, {"a.inv_freq": np.zeros(2), "c": np.ones(2)})
    assert [row.difference for row in rows] == [0, np.inf, np.inf]


@pytest.mark.slow
def test_a_mesh_is_tried(folder):
    """By a process of its own, as this one may have one device."""
    command = [sys.executable, "-c", "from generator.commands.cli import gen; gen()", "parity", "whole", "hf"]
    done = subprocess.run([*command, "--tokens=16"], capture_output=True, text=True)
    assert done.returncode == 2 and "all 20 hold" in done.stdout, done.stderr
    assert "\n  --mesh-tensor 2: " in done.stderr and ", at fragments/model/whole.py:" in done.stderr


def lacking(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def changed(**settings):
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | settings))

    return change


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), "error: hf/config.json: "),
        (lacking, "error: hf: its files lack model.norm.weight, which transformers would initialize at random"),
        (changed(model_type="nobodys"), "error: hf: transformers cannot load it: "),
        (changed(vocab_size=97), "error: hf: transformers cannot load it: "),
        (changed(mlp_bias=True), "error: hf: "),
        (changed(logit_scale=2.0, attention_bias=True), "error: hf: "),
        (changed(quantization_config={"quant_method": "fp8"}), "error: hf: its tensors are quantized"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x"), "error: hf: transformers cannot load it: "),
    ],
)
def test_what_cannot_be_compared(folder, spoil, message):
    spoil(folder)
    assert message in run("llama2", "hf", code=2).stderr


def test_a_package_that_does_not_load_it(folder):
    (folder / "model.safetensors").unlink()
    changed(tie_word_embeddings=True)(folder)
    said = run("llama2", "hf", code=2).stderr
    assert "error: hf: llama2_cpu does not load it:\n  hf/config.json: tie_word_embeddings is true, but" in said


def test_what_is_not_installed(folder, monkeypatch):
    monkeypatch.setattr("generator.commands.parity.NEEDED", ("torch", "no_such_module"))
    said = run("llama2", "hf", code=2).stderr
    assert "error: gen parity needs no_such_module\n  Install what is missing: in a clone" in said


def test_gen_starts_without_torch():
    program = "import sys, generator.commands.cli, generator.commands.parity; print({'jax', 'torch'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "set()\n"
