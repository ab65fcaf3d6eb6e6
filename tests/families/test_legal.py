"""Legal configurations of transformers that no published checkpoint has: what they select, or why they are refused."""

from __future__ import annotations

import json
import tomllib
from copy import deepcopy

import pytest
import transformers

from families.cases import FAMILIES
from families.weaving import LIBRARY
from generator.checkpoint.fit import fit
from generator.errors import LoomError

WINDOW = {"use_sliding_window": True, "sliding_window": 7}
DENSE = "num_hidden_layers is 3, first_k_dense_replace is 3: no layer is sparse, and {} is woven for some:"
SCALED = {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}


def fitted(family: str, settings: dict, ignored: tuple[str, ...] = ()) -> dict:
    """The architecture file for a configuration as transformers saves it."""
    config = getattr(transformers, FAMILIES[family].config)(**deepcopy(FAMILIES[family].settings | settings))
    hf = json.loads(config.to_json_string())
    return tomllib.loads(fit(LIBRARY, family, "cpu", hf, "legal", "config.json", ignored))


@pytest.mark.parametrize(
    ("family", "settings", "fragment"),
    [
        ("mixtral", {"sliding_window": 7}, "model/sliding_window"),
        ("smollm3", WINDOW, "model/sliding_window"),
        ("gemma3", {"final_logit_softcapping": 5.0}, "model/logit_soft_cap"),
        ("ernie4_5", {"use_bias": True}, "model/linear_bias"),
        ("seed_oss", {"attention_bias": False, "attention_out_bias": True}, "model/output_bias"),
        ("deepseek_v3", {"rope_parameters": SCALED}, "model/rope_linear"),
    ],
)
def test_a_rule_selects_what_there_is(family, settings, fragment):
    """Numbers are compared with transformers by the cases of families.yaml."""
    assert fragment in fitted(family, settings)["fragments"]


@pytest.mark.parametrize(
    ("family", "settings", "reason"),
    [
        ("deepseek_v3", {"first_k_dense_replace": 3}, DENSE.format("deepseek_v3")),
        ("glm4_moe", {"first_k_dense_replace": 3, "use_qk_norm": True}, DENSE.format("glm4_moe")),
        ("seed_oss", {"mlp_bias": True}, "mlp_bias is true, and seed_oss is woven for false\n  No rule covers it."),
    ],
)
def test_the_reason_is_true(family, settings, reason):
    with pytest.raises(LoomError) as raised:
        fitted(family, settings)
    assert f"config.json: {reason}" in str(raised.value)
    assert "Add " not in str(raised.value) and "--ignore" not in str(raised.value)


def test_what_transformers_does_not_apply_can_be_accepted():
    """Its Gemma 3 has the cap of scores as an attribute, and hands it to no attention."""
    settings = {"attn_logit_softcapping": 5.0}
    with pytest.raises(
        LoomError, match=r"It takes no fragment, as transformers does not apply it .* --ignore attn_logit_"
    ):
        fitted("gemma3", settings)
    assert "fragments" not in fitted("gemma3", settings, ("attn_logit_softcapping",))
