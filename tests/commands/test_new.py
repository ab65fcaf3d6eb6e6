"""`gen new`: an architecture file from a checkpoint's config.json."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from generator.commands.cli import gen
from generator.layers import find_groups

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "max_position_embeddings": 256,
    "vocab_size": 100,
    "rms_norm_eps": 1e-6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "hidden_act": "silu",
    "rope_theta": 5000.0,
    "initializer_range": 0.02,
    "torch_dtype": "bfloat16",
    "use_cache": True,
}


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Runs `gen new` in an empty project on LLAMA with these settings; what it printed, its exit code, the file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gen.toml").write_text('generated = "generated"\n')

    def run(name: str = "mine", text: str | None = None, **settings):
        Path("config.json").write_text(json.dumps(LLAMA | settings) if text is None else text)
        done = CliRunner().invoke(gen, ["new", "--from-hf", "config.json", "--target", "cpu", "--name", name])
        path = Path(f"templates/architectures/{name}.toml")
        return done.output, done.exit_code, tomllib.loads(path.read_text()) if path.exists() else None

    return run


def test_sizes_become_a_preset(make):
    output, code, table = make()
    assert (code, output) == (0, "templates/architectures/mine.toml: as llama2; next: gen build mine --target=cpu\n")
    assert table["base"] == "llama2" and "without" not in table
    sizes = table["presets"]["mine"]
    assert (sizes["width"], sizes["layers"], sizes["heads"], sizes["kv_heads"], sizes["head_size"]) == (64, 3, 4, 2, 16)
    assert sizes["rope_theta"] == 5000.0


def test_structure_is_chosen(make):
    _, code, table = make(tie_word_embeddings=True)
    assert code == 0
    assert table["without"] == ["model/untied_head"]


def test_the_new_architecture_builds(make):
    make(tie_word_embeddings=True)
    done = CliRunner().invoke(gen, ["build", "mine", "--target=cpu"])
    assert done.exit_code == 0, done.output
    assert '"mine": Config(' in Path("generated/mine_cpu/config.py").read_text()
    assert "self.head" not in Path("generated/mine_cpu/model.py").read_text()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attention_bias": True}, "attention_bias is true, and llama2 is woven for false"),
        ({"logit_scale": 0.5}, "no fragment covers the setting logit_scale, which is 0.5"),
        ({"model_type": "lama"}, "no architecture is of the model_type 'lama'"),
    ],
)
def test_what_no_fragment_covers_is_named(make, settings, message):
    output, code, table = make(**settings)
    assert code == 2 and table is None
    assert f"error: config.json: {message}" in output


@pytest.mark.parametrize(("text", "message"), [("{", "cannot be read"), ("{}", "has no model_type")])
def test_no_config(make, text, message):
    output, code, _ = make(text=text)
    assert code == 2 and message in output


STRIPED = """
base = "llama2"
title = "Llama 2 in stripes"
model_type = "striped"
fragments = ["model/period"]

[[layers]]
pattern = ["even", "odd"]

[kinds.even]
where = "layer % hf['stripe'] == 0"

[kinds.odd]
where = "layer % hf['stripe'] > 0"
"""
STRIPE = """
from generator.marks import splice


@splice("hf.sizes")
def _():
    yield "stripe", "stripe"


class Config:
    stripe: int = 2  # layers from one that is even to the next
"""


@pytest.mark.parametrize(
    ("stripe", "layers", "groups"),
    [
        (2, 4, None),  # the pattern of the family itself
        (3, 6, [{"pattern": ["even", "odd", "odd"], "count": "config.layers // 3"}]),
        (
            9,
            4,
            [
                {"name": "first_0", "pattern": ["even"], "count": "1"},
                {"pattern": ["odd"], "count": "config.layers - 1"},
            ],
        ),
    ],
)
def test_kinds_say_where_their_layers_are(make, stripe, layers, groups):
    Path("templates/architectures").mkdir(parents=True)
    Path("fragments/model").mkdir(parents=True)
    Path("templates/architectures/striped.toml").write_text(STRIPED.replace('period"', 'period", "model/stripe"'))
    Path("fragments/model/stripe.py").write_text(f'"""Stripes."""\n{STRIPE}')
    output, code, table = make(model_type="striped", stripe=stripe, num_hidden_layers=layers)
    assert code == 0, output
    assert table.get("layers") == groups
    assert groups is None or set(table["kinds"]) == {"even", "odd"}
    done = CliRunner().invoke(gen, ["build", "mine", "--target=cpu"])
    assert done.exit_code == 0, done.output


def test_a_kind_that_no_layer_of_the_family_is_of(make):
    spare = STRIPED.replace("layer % hf['stripe'] > 0", "layer % hf['stripe'] == 1")
    spare += "\n[kinds.odder]\nwhere = \"layer % hf['stripe'] > 1\"\n"
    Path("templates/architectures").mkdir(parents=True)
    Path("fragments/model").mkdir(parents=True)
    Path("templates/architectures/striped.toml").write_text(spare.replace('period"', 'period", "model/stripe"'))
    Path("fragments/model/stripe.py").write_text(f'"""Stripes."""\n{STRIPE}')
    output, code, table = make(model_type="striped", stripe=3, num_hidden_layers=6)
    assert code == 0, output
    assert table["layers"] == [{"pattern": ["even", "odd", "odder"], "count": "config.layers // 3"}]
    assert set(table["kinds"]) == {"even", "odd", "odder"}


def test_names(make):
    assert "cannot name an architecture" in make(name="My-Model")[0]
    assert "there is an architecture 'llama2' already" in make(name="llama2")[0]


@pytest.mark.parametrize(
    ("kinds", "groups"),
    [
        ("aaaa", [("", "a", "config.layers")]),
        ("abab", [("", "ab", "config.layers // 2")]),
        ("dddssss", [("first_0", "d", "3"), ("", "s", "config.layers - 3")]),
        ("lllllg" * 3 + "ll", [("", "lllllg", "(config.layers - 2) // 6"), ("last_0", "l", "2")]),
        ("sdsss", [("first_0", "s", "1"), ("first_1", "d", "1"), ("", "s", "config.layers - 2")]),
    ],
)
def test_groups_of_layers(kinds, groups):
    found = find_groups(list(kinds))
    config, layers = type("Config", (), {"layers": len(kinds)}), []
    for _, pattern, count in found:
        layers += pattern * eval(count, {"config": config})
    assert "".join(layers) == kinds
    assert [(name, "".join(pattern), count) for name, pattern, count in found] == groups
