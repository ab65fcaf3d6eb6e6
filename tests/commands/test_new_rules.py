"""Rules that select fragments and layers by settings of a config.json."""

from __future__ import annotations

import pytest
from test_new import add, build

from generator.recipe.pattern import find_groups

QWEN = {"model_type": "qwen2", "tie_word_embeddings": False, "max_window_layers": 2, "sliding_window": 16}
MOE = {"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
MOE |= {"router_aux_loss_coef": 0.01, "num_hidden_layers": 6}
SMOL = {"model_type": "smollm3", "num_hidden_layers": 10}


def test_settings_that_change_nothing_where_others_are_off(fit):
    for number, off in enumerate([{"use_sliding_window": False}, {}]):
        table = fit(name=f"mine{number}", **QWEN, **off)
        assert "fragments" not in table and "window" not in table["presets"][f"mine{number}"]


FIRST_FULL = {"name": "first_0", "pattern": ["full"], "count": "1"}


@pytest.mark.parametrize(
    ("upper", "groups"),
    [
        (1, [FIRST_FULL, {"pattern": ["local"], "count": "config.layers - 1"}]),
        (3, [{"pattern": ["full"], "count": "config.layers"}]),  # all of one kind
    ],
)
def test_layers_by_the_kinds_of_a_rule(fit, upper, groups):
    table = fit(**QWEN | {"max_window_layers": upper, "use_sliding_window": True})
    assert table["layers"] == groups
    assert table["settings"]["full_layers"] == upper
    assert set(table["without_presets"]) == {"7b", "14b", "32b", "72b"}  # which have no window


def test_rules_together(make, fit):
    """Experts that a rule moves into a kind of layer, less what another rule leaves out, whichever comes first."""
    table = fit(**MOE, norm_topk_prob=False, mlp_only_layers=[0, 2, 4])
    assert table["layers"] == [{"pattern": ["dense", "sparse"], "count": "config.layers // 2"}]
    assert table["kinds"]["sparse"]["fragments"][:3] == ["model/experts", "model/replayed_experts", "model/expert_load"]
    assert "model/normalised_top_k" in table["without"]
    assert table["presets"]["mine"]["mlp_width"] == 96
    output, code, table = make(name="sparse", **MOE, norm_topk_prob=True)  # no dense layers, of no width
    assert code == 0, output
    assert "mlp_width" not in table["presets"]["sparse"]


def test_presets_fill_the_pattern(fit):
    """The tiny one gets the layers that it needs; those of the family that leave some over are left out."""
    table = fit(**SMOL, tie_word_embeddings=True, no_rope_layers=2 * [1, 0, 1, 0, 0])
    assert table["layers"] == [{"pattern": [*2 * ["rotated", "plain"], "plain"], "count": "config.layers // 5"}]
    assert table["presets"]["tiny"] == {"layers": 10}
    assert table["without_presets"] == ["3b"]


STRIPES = '"""Stripes."""\n\nfrom generator.language import splice\n\n\n'
STRIPE = f"""{STRIPES}@splice("hf.sizes")
def _():
    yield "stripe", "stripe"


class Config:
    stripe: int = 2  # layers from one that is even to the next
"""
READS_STRIPES = f"""{STRIPES}@splice("hf.structure")
def _(config):
    yield "stripes", True, "model/stripe"
"""
ADDED = """
base = "llama2"
title = "Llama 2 with a stripe"
model_type = "added"

[[structure]]
setting = "tie_word_embeddings"
value = true
without = ["model/untied_head"]
fragments = ["model/stripe"]
"""
STATED = """
[structure.presets.tiny]
stripe = 4

[structure.hf.tensors]
"norm.scale" = "model.last.weight"

[structure.hf.defaults]
rope_theta = 7.0
"""
STRIPED = """
base = "llama2"
title = "Llama 2 in stripes"
model_type = "striped"
fragments = ["model/period", "model/stripe"]

[[layers]]
pattern = ["even", "odd"]

[kinds.even]
where = "layer % hf['stripe'] == 0"

[kinds.odd]
where = "layer % hf['stripe'] > 0"
"""
REPLACED = """
base = "llama2"
title = "Llama 2 with norms on the heads of some layers"
model_type = "striped"
fragments = ["model/period"]

[[layers]]
pattern = ["even", "odd"]

[kinds.even]
fragments = ["model/qk_norm"]

[kinds.odd]

[[structure]]
setting = "tie_word_embeddings"
value = true
without = ["model/untied_head"]
fragments = ["model/qk_norm"]

[[structure.layers]]
pattern = ["full"]

[structure.kinds.full]
"""


def test_a_rule_gives_the_tiny_preset_what_its_fragments_add(fit):
    """And states tensors and defaults as an architecture does."""
    add("added", ADDED + STATED, stripe=STRIPE.replace("int = 2", "int"))
    table = fit(model_type="added", tie_word_embeddings=True, stripe=3, rope_theta=None)
    assert table["presets"]["tiny"] == {"stripe": 4}
    assert set(table["without_presets"]) == {"7b", "13b", "70b"}
    assert table["hf"] == {"tensors": {"norm.scale": "model.last.weight"}, "defaults": {"rope_theta": 7.0}}
    assert table["presets"]["mine"]["rope_theta"] == 7.0


def test_a_rule_that_does_not(refuse):
    add("added", ADDED, stripe=STRIPE.replace("int = 2", "int"))
    output = refuse(model_type="added", tie_word_embeddings=True, stripe=3)
    assert "added.toml:6: the preset 'tiny' leaves out stripe, which a fragment of this rule adds" in output


def test_every_architecture_of_a_model_type_is_tried(make, refuse):
    """What none reads is told of the one that lacks least."""
    for name, ignored in ("first", ["spots"]), ("second", ["stripes", "dots"]):
        add(name, f'base = "llama2"\ntitle = "T"\nmodel_type = "added"\n[settings]\nignored = {ignored}\n')
    output, code, table = make(model_type="added", stripes=3)
    assert (code, table["base"]) == (0, "second"), output
    output = refuse(name="other", model_type="added", stripes=3, dots=1, hair=2)
    assert "no fragment of second reads the setting hair" in output and "stripes" not in output


def test_a_rule_for_a_setting_that_no_fragment_reads(fit):
    text = ADDED.replace("tie_word_embeddings", "stripes").replace('["model/untied_head"]', "[]")
    add("added", text, stripe=READS_STRIPES)
    table = fit(model_type="added", stripes=True)
    assert table["fragments"] == ["model/stripe"]


def test_layers_as_a_rule_writes_them(fit):
    """Also where only the kinds that it replaces had a fragment."""
    table = fit(name="full", model_type="mistral", sliding_window=None)
    assert table["layers"] == [{"pattern": ["full"], "count": "config.layers"}] and table["kinds"] == {"full": {}}
    add("striped", REPLACED)
    table = fit(model_type="striped", tie_word_embeddings=True)
    assert table["fragments"] == ["model/qk_norm"]
    assert table["kinds"] == {"full": {}}


def test_a_where_that_cannot_be_evaluated(refuse):
    add("striped", STRIPED.replace("layer % hf['stripe'] == 0", "layer % x"), stripe=STRIPE)
    output = refuse(model_type="striped")
    assert "the `where` at templates/architectures/striped.toml:11 cannot be evaluated: NameError: name 'x'" in output


ODD_ONES = [{"name": "first_0", "pattern": ["even"], "count": "1"}, {"pattern": ["odd"], "count": "config.layers - 1"}]


@pytest.mark.parametrize(
    ("stripe", "layers", "groups"),
    [
        pytest.param(2, 4, None, marks=pytest.mark.slow),  # the pattern of the family itself
        pytest.param(
            3, 6, [{"pattern": ["even", "odd", "odd"], "count": "config.layers // 3"}], marks=pytest.mark.slow
        ),
        (9, 4, ODD_ONES),
    ],
)
def test_kinds_say_where_their_layers_are(fit, stripe, layers, groups):
    add("striped", STRIPED, stripe=STRIPE)
    table = fit(model_type="striped", stripe=stripe, num_hidden_layers=layers)
    assert table.get("layers") == groups
    assert groups is None or set(table["kinds"]) == {"even", "odd"}
    build()


def test_a_kind_that_no_layer_of_the_family_is_of(fit):
    spare = STRIPED.replace("layer % hf['stripe'] > 0", "layer % hf['stripe'] == 1")
    add("striped", spare + "\n[kinds.odder]\nwhere = \"layer % hf['stripe'] > 1\"\n", stripe=STRIPE)
    table = fit(model_type="striped", stripe=3, num_hidden_layers=6)
    assert table["layers"] == [{"pattern": ["even", "odd", "odder"], "count": "config.layers // 3"}]
    assert set(table["kinds"]) == {"even", "odd", "odder"}


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
    for group in found:
        layers += group.pattern * eval(group.count, {"config": config})
    assert "".join(layers) == kinds
    assert [(group.name, "".join(group.pattern), group.count) for group in found] == groups
