"""docs/add-a-family.md, done as it says: each command prints what the page shows, numbers of parity aside."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
import transformers
from click.testing import CliRunner

from generator.commands.cli import gen
from generator.disk.project import Project

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/add-a-family.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
SETTINGS = {
    **dict(architectures=["OlmoForCausalLM"], model_type="olmo", attention_bias=False, attention_dropout=0.0),
    **dict(clip_qkv=None, eos_token_id=50279, hidden_act="silu", hidden_size=2048, initializer_range=0.02),
    **dict(intermediate_size=8192, max_position_embeddings=2048, num_attention_heads=16, num_hidden_layers=16),
    **dict(num_key_value_heads=16, pad_token_id=1, rope_scaling=None, rope_theta=10000.0, tie_word_embeddings=True),
    **dict(torch_dtype="float32", transformers_version="4.40.0.dev0", use_cache=True, vocab_size=50304),
}


def plain(text: str) -> str:
    """Without the numbers that differ between machines."""
    numbers = r"\d[\d.e-]*(?= +[\d.e-]+ +ok\n)|(?<= )(0\.000\d+|\d(\.\d+)?e-0\d)(?= +ok\n)"
    told = re.sub(r"^([^\n]* \.\.\.|note: transformers gives [^\n]*)\n", "", text, flags=re.MULTILINE)  # what runs
    return re.sub(numbers, "N", re.sub(" +", " ", told))


@pytest.mark.slow
def test_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("gen.toml").write_text('generated = "generated"\n')
    Path("hf").mkdir()
    Path("hf/config.json").write_text(json.dumps(SETTINGS))
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained("hf"))
    index = {"weight_map": dict.fromkeys(model.state_dict().keys() - {"lm_head.weight"}, "model.safetensors")}
    Path("hf/model.safetensors.index.json").write_text(json.dumps(index))
    architecture, commands = Path("templates/architectures/olmo.toml"), 0
    for language, text in BLOCKS:
        if "<<'END'" in text:
            Path("small").mkdir()
            subprocess.run([sys.executable, "-c", text.split("<<'END'\n")[1].split("END\n")[0]], check=True)
        elif language == "python":
            Path("fragments/model").mkdir(parents=True)
            Path("fragments/model/plain_norm.py").write_text(text)
        elif language == "toml":
            presets = "[presets" + architecture.read_text().partition("[presets")[2]
            architecture.write_text(f"{text}\n{presets}")
        elif language == "console":
            command, expected = text.removeprefix("$ gen ").split("\n", 1)
            # in a process of its own: this one has JAX already, with one device
            environment = os.environ | {"PYTHONPATH": str(ROOT)}
            run = subprocess.run(
                [sys.executable, "-m", "generator", *command.split()], env=environment, capture_output=True, text=True
            )
            output = (run.stderr + run.stdout).replace(tempfile.gettempdir(), "/tmp")
            assert plain(output) == plain(expected)
            commands += 1
    assert commands == 4
    # another checkpoint of the family, by the page's rule
    other = json.loads(Path("small/config.json").read_text()) | {"clip_qkv": 0.5, "tie_word_embeddings": False}
    Path("small/config.json").write_text(json.dumps(other))
    for command in "new --from-hf small/config.json --target=cpu --name=clipped", "parity clipped small":
        Project.find().forget_library()
        result = CliRunner().invoke(gen, command.split())
        assert result.exit_code == 0, result.output
    assert '"model/clip_qkv"' in Path("templates/architectures/clipped.toml").read_text()
