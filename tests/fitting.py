"""Fixtures that run `gen new` in an empty project."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from generator.commands.cli import gen

LLAMA = {
    **{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "max_position_embeddings": 256},
    **{"vocab_size": 100, "rms_norm_eps": 1e-6, "num_attention_heads": 4, "num_key_value_heads": 2},
    **{"intermediate_size": 96, "hidden_act": "silu", "rope_theta": 5000.0, "initializer_range": 0.02},
    **{"torch_dtype": "bfloat16", "use_cache": True},
}


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Runs `gen new` in an empty project on LLAMA with these settings; what it printed, its exit code, the file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gen.toml").write_text('generated = "generated"\n')

    def run(name: str = "mine", text: str | None = None, ignore: tuple[str, ...] = (), family: str = "", **settings):
        Path("config.json").write_text(json.dumps(LLAMA | settings) if text is None else text)
        accepted = [f"--ignore={setting}" for setting in ignore] + ([f"--as={family}"] if family else [])
        command = ["new", "--from-hf", "config.json", "--target", "cpu", "--name", name, *accepted]
        done = CliRunner().invoke(gen, command)
        path = Path(f"templates/architectures/{name}.toml")
        return done.output, done.exit_code, tomllib.loads(path.read_text()) if path.exists() else None

    return run


@pytest.fixture
def fit(make):
    """Runs `gen new` as `make`; returns the file."""

    def run(*words, **settings):
        output, code, table = make(*words, **settings)
        assert code == 0, output
        return table

    return run


@pytest.fixture
def refuse(make):
    """Runs `gen new` as `make`; returns the error."""

    def run(*words, **settings):
        output, code, table = make(*words, **settings)
        assert (code, table) == (2, None)
        return output

    return run
