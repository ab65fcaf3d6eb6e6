"""Folders that `gen parity` takes: it says whose weights it compares, and refuses those that it does not read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from families.cases import SMALL
from generator.commands.cli import gen


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A project with a checkpoint."""
    monkeypatch.chdir(tmp_path)
    Path("gen.toml").write_text('generated = "generated"\n')
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL)).save_pretrained("hf")
    return tmp_path / "hf"


def run(where: str = "hf"):
    done = CliRunner().invoke(gen, ["parity", "llama2", where])
    return done.exit_code, done.stderr


def test_the_first_line_says_whose_weights(folder):
    assert "; weights: model.safetensors; takes" in run()[1].splitlines()[0]
    (folder / "model.safetensors").unlink()
    assert "; random weights: the folder has none; takes" in run()[1].splitlines()[0]


@pytest.mark.parametrize("file", ["pytorch_model.bin", "model.gguf", "model.safetensors.index.json"])
def test_other_weights_are_not_taken_for_none(folder, file):
    (folder / "model.safetensors").rename(folder / file)
    code, said = run()
    assert code == 2 and said.startswith(f"error: hf: has {file}, and no safetensors file of weights\n  Save it as")


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("none", "none: does not exist"),
        ("gen.toml", "gen.toml: is not a folder"),
        ("empty", "empty/config.json: does not exist"),
    ],
)
def test_no_folder_of_a_checkpoint(folder, where, reason):
    Path("empty").mkdir()
    assert run(where) == (2, f"error: {reason}\n  Give a folder with config.json.\n")


def test_a_tensor_of_another_shape_is_named(folder):
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"][:-1].clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert (
        "hf: transformers cannot load it: model.norm.weight has the shape [31], and config.json asks for [32]\n"
        in run()[1]
    )


def test_fragments_are_not_blamed_for_a_model_type(folder):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": "mistral"}))
    said = run()[1]
    assert 'model_type is "mistral", but this package was woven for "llama"' in said and "hf.sizes" not in said
