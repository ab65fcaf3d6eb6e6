"""`gen parity`: equal models hold, differences fail by name, and each folder that cannot be compared is an error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from families.cases import SMALL
from generator.checkpoint.comparisons import _compare_gradients  # imports jax: gen parity keeps its devices
from generator.commands.cli import gen

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
FRAGMENTS = {"stretched": STRETCHED, "epsilon": EPSILON, "paired": PAIRED, "whole": WHOLE, "misshapen": MISSHAPEN}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A project with wrong architectures, each named after its fragment, and a checkpoint in bf16."""
    monkeypatch.chdir(tmp_path)
    Path("gen.toml").write_text('generated = "generated"\n')
    for path in (fragments := Path("fragments/model"), architectures := Path("templates/architectures")):
        path.mkdir(parents=True)
    for name, text in FRAGMENTS.items():
        (fragments / f"{name}.py").write_text(text)
        base = "qwen3" if name == "epsilon" else "llama2"
        (architectures / f"{name}.toml").write_text(f'base = "{base}"\ntitle = "Wrong"\nfragments = ["model/{name}"]\n')
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
    assert "; weights: model.safetensors; takes" in done.stderr.splitlines()[0]
    assert "all 20 hold" in done.stdout and "FAILED" not in done.stdout
    assert "gradient of model.layers.*.self_attn.q_proj.weight" in done.stdout
    assert {path.name for path in folder.iterdir()} == {"config.json", "generation_config.json", "model.safetensors"}


def test_a_config_alone(folder):
    (folder / "model.safetensors").unlink()
    done = run("llama2", "hf", "--tokens=20", "--json", code=0)
    assert "; random weights: the folder has none; takes" in done.stderr.splitlines()[0]
    rows = json.loads(done.stdout)
    assert all(row["holds"] for row in rows) and len(rows) == 20
    steps = done.stderr.index("loading with transformers"), done.stderr.index("logits and gradients ...")
    assert steps[0] < done.stderr.index("loading with llama2_cpu") < steps[1] < done.stderr.index("round trip ...")


def test_the_row_of_the_padding_token_is_told(folder):
    """transformers gives it no gradient: torch's Embedding leaves out padding_idx."""
    (folder / "model.safetensors").unlink()
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"pad_token_id": settings["eos_token_id"]}))
    done = run("llama2", "hf", code=0)
    assert f"the embedding of token {settings['eos_token_id']}, its pad_token_id, no gradient" in done.stderr


def test_what_differs_is_named(folder):
    rows = {row["what"]: row for row in json.loads(run("stretched", "hf", "--json", code=1).stdout)}
    assert not rows["logits"]["holds"] and not rows["cached decoding: log-probabilities"]["holds"]
    assert all(row["holds"] for what, row in rows.items() if what.startswith("round trip"))
    table = run("stretched", "hf", code=1).stdout
    assert "\n  logits  " in table and " FAILED\n" in table and table.count("largest difference") == 1


@pytest.mark.slow
def test_an_epsilon_of_norms_that_is_too_large(folder):
    """It moves logits by little more than rounding does."""
    (folder / "model.safetensors").unlink()
    (folder / "config.json").unlink()
    transformers.Qwen3Config(**SMALL, head_dim=8, rms_norm_eps=1e-6).save_pretrained(folder)
    assert all(row["holds"] for row in json.loads(run("qwen3", "hf", "--json", code=0).stdout))
    rows = {row["what"]: row for row in json.loads(run("epsilon", "hf", "--json", code=1).stdout)}
    assert not rows["logits"]["holds"] and not rows["cached decoding: log-probabilities"]["holds"]


def test_what_was_compared_before_an_error_is_shown(folder):
    done = run("paired", "hf", "--json", code=2)
    rows = {row["what"]: row["holds"] for row in json.loads(done.stdout)}
    assert rows["logits"] and rows["round trip: tensors of other bytes"] and "cached decoding: other tokens" not in rows
    assert "error: hf: paired_cpu could not be compared in all:\n  cached decoding: " in done.stderr
    assert " at fragments/" in done.stderr and "Traceback" not in done.stderr


def test_a_layout_of_other_axes(folder):
    error = run("misshapen", "hf", code=2).stderr
    assert "error: hf: misshapen_cpu does not load it: EinopsError: " in error


def test_what_has_no_gradient_may_be_lacking():
    rows = _compare_gradients({"b": np.ones(2)}, {"a.inv_freq": np.zeros(2), "c": np.ones(2)})
    assert [row.difference for row in rows] == [0, np.inf, np.inf]


def test_what_is_zero_in_mathematics_is_compared_as_such():
    """A key bias without rotation adds the same to all scores of a query: its gradients are rounding, and differ."""
    random = np.random.default_rng(0)
    x, kernel, bias = (random.normal(size=size).astype(np.float32) for size in ((64, 32), (32, 32), 32))

    def outputs(softmax, x, kernel, bias):
        return softmax(x @ (x @ kernel + bias).T / 6, -1) @ x

    ours = jax.grad(lambda *parts: (outputs(jax.nn.softmax, x, *parts) ** 2).mean(), (0, 1))(kernel, bias)
    theirs = [torch.tensor(part, requires_grad=True) for part in (kernel, bias)]
    (outputs(torch.softmax, torch.tensor(x), *theirs) ** 2).mean().backward()
    named = {"kernel": theirs[0].grad.numpy(), "bias": theirs[1].grad.numpy()}
    for wrong, holds in ((0, True), (1e-5, False)):
        rows = _compare_gradients({"kernel": np.asarray(ours[0]), "bias": np.asarray(ours[1]) + wrong}, named)
        assert {row.what: row.holds for row in rows} == {
            "gradient of kernel": True,
            "gradient of bias, which is 0": holds,
        }
    small = {"kernel": named["kernel"], "bias": 1e-4 * named["kernel"][0]}  # it is no rounding
    assert not all(row.holds for row in _compare_gradients(small | {"bias": 1.01 * small["bias"]}, small))


@pytest.mark.slow
def test_a_mesh_is_tried(folder):
    """By a process of its own, as this one may have one device."""
    command = [sys.executable, "-c", "from generator.commands.cli import gen; gen()", "parity", "whole", "hf"]
    done = subprocess.run([*command, "--tokens=16"], capture_output=True, text=True)
    assert done.returncode == 2 and "all 20 hold" in done.stdout, done.stderr
    assert "\n  --mesh-tensor 2: " in done.stderr and ", at fragments/model/whole.py:" in done.stderr


def with_tensors(change):
    """Changes the tensors of a folder."""

    def spoil(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    return spoil


def with_settings(**settings):
    """Changes the settings of a folder."""

    def spoil(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | settings))

    return spoil


def with_other_weights(name: str):
    return lambda folder: (folder / "model.safetensors").rename(folder / name)


NORM = "model.norm.weight"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), "error: hf/config.json: "),
        (
            with_tensors(lambda it: it.pop(NORM)),
            f"its files lack {NORM}, which transformers would initialize at random",
        ),
        (
            with_tensors(lambda it: it.update({NORM: it[NORM][:-1].clone()})),
            f"transformers cannot load it: {NORM} has the shape [31], and config.json asks for [32]\n",
        ),
        (with_settings(model_type="nobodys"), "error: hf: transformers cannot load it: "),
        (with_settings(vocab_size=97), "error: hf: transformers cannot load it: "),
        (with_settings(mlp_bias=True), "error: hf: "),
        (with_settings(logit_scale=2.0, attention_bias=True), "error: hf: "),
        (with_settings(quantization_config={"quant_method": "fp8"}), "error: hf: its tensors are quantized"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x"), "error: hf: transformers cannot load it: "),
        *(
            (with_other_weights(name), f"error: hf: has {name}, and no safetensors file of weights\n  Save it with")
            for name in ("pytorch_model.bin", "model.gguf", "model.safetensors.index.json")
        ),
    ],
)
def test_what_cannot_be_compared(folder, spoil, message):
    spoil(folder)
    assert message in run("llama2", "hf", code=2).stderr


@pytest.mark.parametrize(
    "reason", ["none: does not exist", "gen.toml: is not a folder", "empty/config.json: does not exist"]
)
def test_no_folder_of_a_checkpoint(folder, reason):
    Path("empty").mkdir()
    done = run("llama2", reason.partition(":")[0].removesuffix("/config.json"), code=2)
    assert done.stderr == f"error: {reason}\n  Give a folder with config.json.\n"


def test_fragments_are_not_blamed_for_a_model_type(folder):
    with_settings(model_type="mistral")(folder)
    error = run("llama2", "hf", code=2).stderr
    assert 'model_type is "mistral", and this package is for "llama"' in error and "hf.sizes" not in error


def test_a_package_that_does_not_load_it(folder):
    (folder / "model.safetensors").unlink()
    with_settings(tie_word_embeddings=True)(folder)
    error = run("llama2", "hf", code=2).stderr
    assert "error: hf: llama2_cpu does not load it:\n  hf/config.json: tie_word_embeddings is true, and" in error


def test_what_is_not_installed(folder, monkeypatch):
    monkeypatch.setattr("generator.commands.parity.NEEDED", ("torch", "no_such_module"))
    error = run("llama2", "hf", code=2).stderr
    assert "error: gen parity needs no_such_module\n  Install what is missing: in a clone" in error


def test_gen_starts_without_torch():
    program = "import sys, generator.commands.cli, generator.commands.parity; print({'jax', 'torch'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "set()\n"
