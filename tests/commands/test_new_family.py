"""A model type that no architecture has, and files to start from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import transformers
from test_new import ARCHITECTURES, ROOT, build, published

from generator.checkpoint.draft import find_nearest_family
from generator.recipe.library import Library
from generator.recipe.recipe import find_inherited, lineage_of

OLMO = {"model_type": "olmo4", "architectures": ["Olmo4ForCausalLM"], "tie_word_embeddings": True}
OLMO_LAYER = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "self_attn.q_norm"]
OLMO_LAYER += ["self_attn.k_norm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
OLMO_LAYER += ["post_attention_layernorm", "post_feedforward_layernorm"]
OLMO_TENSORS = ["model.norm.weight", "model.embed_tokens.weight"]
OLMO_TENSORS += [f"model.layers.{layer}.{name}.weight" for layer in range(3) for name in OLMO_LAYER]
INDEX = Path("model.safetensors.index.json")


def test_an_unknown_model_type_is_not_what_it_is_spelt_like(refuse):
    """By its settings olmo4 is a llama, by its tensors an olmo2."""
    output = refuse(**OLMO)
    assert "the nearest is llama2. Differences:\n  - tensors were not compared: there is" in output
    INDEX.write_text(json.dumps({"weight_map": dict.fromkeys([*OLMO_TENSORS, "model.stripes.weight"], "x")}))
    output = refuse(**OLMO, stripes=3)
    assert (
        "By names, the nearest is olmo2. Differences:\n"
        "  - no fragment of olmo2 reads the setting stripes, which is 3\n" in output
    )
    assert "\n  - no fragment has a place for the tensor model.stripes.weight\n  gen new --as olmo2 writes" in output


STATEFUL = """
    falcon_mamba mamba zamba2
""".split()


@pytest.mark.parametrize("model_type", STATEFUL)
def test_a_recurrent_model_is_called_so_in_the_first_line(refuse, model_type):
    """As transformers writes it with all its defaults."""
    config = transformers.CONFIG_MAPPING[model_type]().to_dict() | {"architectures": ["XForCausalLM"]}
    first = refuse(text=json.dumps(config, default=str)).splitlines()[0]
    kind = "a recurrent model" if "mamba" in model_type[-7:] else "a hybrid of attention and layers with a recurrent"
    assert kind in first and first.endswith("Loomax has only the recurrent layers of docs/families.md")


def test_a_model_that_is_near_to_none(refuse):
    """Each difference is told, whatever it is: a list where others have a number too."""
    config = transformers.CONFIG_MAPPING["longcat_flash"]().to_dict() | {"kv_lora_rank": [512, 256]}
    output = refuse(text=json.dumps(config))
    assert "By names, none is near; deepseek_v3 is the least far. Differences:\n" in output
    assert output.count("\n  - ") > 10
    assert "kv_lora_rank is [" in output and "the setting zero_expert_num" in output


def test_a_file_to_start_from(make):
    """What differs stands in it as comments; what rules cover, they cover; and it builds."""
    header = json.dumps({name: {} for name in OLMO_TENSORS}).encode()
    Path("model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    output, code, table = make(**OLMO, family="llama2", **{"a\nb": 1})
    assert (code, "mine.toml: as llama2; next: work through the 5 differences" in output) == (0, True), output
    text = (ARCHITECTURES / "mine.toml").read_text()
    assert "# - no fragment has a place for the tensor model.layers.{}.self_attn.q_norm.weight\n" in text
    assert (table["base"], table["model_type"], table["reference"]) == ("llama2", "olmo4", "Olmo4ForCausalLM")
    assert table["without"] == ["model/untied_head", "tests/test_flops", "tests/test_llama", "tests/test_rope"]
    assert table["presets"]["mine"]["width"] == 64
    build()
    output, code, _ = make(name="next", **OLMO)
    assert (code, "next.toml: as mine" in output) == (0, True), output  # the family is known now


def test_a_family_that_takes_for_granted_what_is_left_out(fit):
    text = json.dumps({"model_type": "mpt", "d_model": 64, "n_layers": 2, "vocab_size": 100})
    table = fit(text=text, family="cohere2")
    text = (ARCHITECTURES / "mine.toml").read_text()
    assert "# - the setting hidden_size is left out, and cohere2 takes 8192 then\n" in text
    assert "no fragment of cohere2 reads the setting d_model, which is 64" in text
    assert "width" not in table["presets"]["mine"]


@pytest.mark.parametrize("data", [b"[]", b"{", b'{"weight_map": 3}', b"{}", b"\xff"])
def test_an_index_that_is_none(refuse, data):
    INDEX.write_bytes(data)
    output = refuse(**OLMO)
    assert "config.json: model.safetensors.index.json beside it cannot be read" in output


@pytest.mark.parametrize("share", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_the_nearest_of_each_published_family_is_that_family(share):
    """By settings alone, under a model_type that nothing has. Every 8th.

    What two families read alike is either's. Of EXAONE 4's settings, OLMo 3 takes one more for granted.
    """
    library = Library.read([ROOT])
    alike = {"mistral": "qwen2", "qwen3": "qwen2", "gemma3": "gemma3_text", "llama4": "llama4_text", "olmo2": "llama"}
    alike |= {"apertus": "llama", "ernie4_5": "llama", "deepseek_v2": "deepseek_v3", "exaone4": "olmo3"}
    for path in sorted((ROOT / "tests/families/published").glob("*.json"))[::share]:
        found, is_near = find_nearest_family(library, "cpu", published(path.stem, model_type="nobodys"), set())
        nearest = find_inherited(lineage_of(found, library), "model_type")
        assert is_near and nearest in (path.stem, alike.get(path.stem))
