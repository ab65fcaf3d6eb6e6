"""`gen new`: an architecture file from a checkpoint's config.json."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from generator.commands.cli import gen

ROOT = Path(__file__).parents[2]
ARCHITECTURES = Path("templates/architectures")


def published(family: str, **settings) -> dict:
    """A configuration as it was published, with other settings."""
    path = ROOT / f"tests/families/published/{family}.json"
    return next(iter(json.loads(path.read_text()).values()))["config"] | settings


def add(name: str, text: str, **fragments: str) -> None:
    """An architecture of the project, and fragments of its own."""
    paths = {Path(f"fragments/model/{short}.py"): source for short, source in fragments.items()}
    for path, source in {ARCHITECTURES / f"{name}.toml": text, **paths}.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)


def build() -> None:
    done = CliRunner().invoke(gen, ["build", "mine", "--target=cpu", "--with=huggingface"])
    assert done.exit_code == 0, done.output


def test_sizes_become_a_preset_and_structure_is_chosen(make):
    output, code, table = make(tie_word_embeddings=True)
    assert (code, output) == (0, "templates/architectures/mine.toml: as llama2; next: gen build mine --target=cpu\n")
    assert table["base"] == "llama2" and table["without"] == ["model/untied_head"]
    sizes = table["presets"]["mine"]
    assert (sizes["width"], sizes["layers"], sizes["heads"], sizes["kv_heads"], sizes["head_size"]) == (64, 3, 4, 2, 16)
    assert sizes["rope_theta"] == 5000.0
    build()
    assert '"mine": Config(' in Path("generated/mine_cpu/config.py").read_text()
    assert "self.head" not in Path("generated/mine_cpu/model.py").read_text()
    done = CliRunner().invoke(gen, ["new", "--from-hf", ".", "--target", "cpu", "--name", "other"])  # of a folder
    assert done.exit_code == 0, done.output


SCALED = {"rope_type": "dynamic", "factor": 2.0}
HALF = {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5}
LONGEST = "Give a number from 1 to 10,000."
WOVEN = "and llama2 is woven for"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mlp_bias": True}, f"mlp_bias is true, {WOVEN} false\n  No rule covers it. It takes"),
        ({"rope_scaling": SCALED}, f'rope_scaling is {{"rope_type": "dynamic", "factor": 2.0}}, {WOVEN} null'),
        ({"quantization_config": {"x": 1}}, 'quantization_config is {"x": 1}, and'),
        ({"hidden_act": "gelu"}, "feed-forward of that activation. Or accept what it would change: --ignore"),
        ({"is_causal": False}, "no fragment of llama2 reads the setting is_causal, which is false"),
        ({"logit_scale": 0.5}, "no fragment of llama2 reads the setting logit_scale, which is 0.5\n  Write a fragment"),
        ({"initializer_range": None}, "initializer_range is null, left out or ignored, and llama2 reads init_std from"),
        ({"hidden_act": None}, f'hidden_act is null, {WOVEN} "silu"'),
        ({"hidden_size": None}, "the setting 'hidden_size' is missing"),
        ({"num_hidden_layers": 10**9}, f"num_hidden_layers is 1000000000\n  {LONGEST}"),
        ({"num_hidden_layers": float("inf")}, f"num_hidden_layers is Infinity\n  {LONGEST}"),
        ({"num_hidden_layers": "3"}, f'num_hidden_layers is "3"\n  {LONGEST}'),
        ({"vocab_size": {}}, "vocab_size is {}, and vocab_size is of type int"),
        ({"initializer_range": True}, "initializer_range is true, and init_std is of type float"),
        ({"intermediate_size": 10**30}, f"would refuse its sizes:\n  intermediate_size [mlp_width] {10**30}: must be"),
        ({"max_position_embeddings": -1}, "max_position_embeddings [context_length] -1: must be an integer from 1"),
        ({"rope_theta": float("nan")}, "rope_theta [rope_theta] nan: must be a number from"),
        ({"num_attention_heads": 3}, "hidden_size [width] 64: must be a multiple of num_attention_heads [heads] 3"),
        ({"num_key_value_heads": 3}, "num_key_value_heads [kv_heads] 3: must divide num_attention_heads [heads] 4"),
        ({"rms_norm_eps": 0}, "rms_norm_eps [norm_epsilon] 0.0: must be a number from 1e-30 to 1e+30\n  Fix"),
        ({"rope_parameters": "x"}, "rope_parameters is \"x\", and this cannot be read: 'str' object has no"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0, and this cannot be read: integer division"),
        ({"a\nb\u202e": 1}, "reads the setting a\\nb\\u202e, which is 1\n"),
        ({"rope_parameters": HALF}, "reads the setting rope_parameters.partial_rotary_factor, which is 0.5"),
        # of other families, where they change nothing by themselves
        ({"max_window_layers": 2}, "no fragment of llama2 reads the setting max_window_layers, which is 2"),
        ({"layer_types": 3}, "no fragment of llama2 reads the setting layer_types, which is 3"),
        ({"model_type": "lama"}, "has the model_type 'lama'\n  By names, the nearest is llama2. Differences:"),
        ({"model_type": "t5", "is_encoder_decoder": True}, "is an encoder-decoder model, 't5'; Loomax has only"),
        (
            {"model_type": "b", "architectures": ["BForMaskedLM"]},
            "model that does not continue a text, 'b' (BForMaskedLM)",
        ),
        ({"model_type": "clip", "text_config": {}, "vision_config": {}}, "of several parts (text, vision), 'clip'"),
        ({"model_type": "x", "text_config": {"model_type": "llama4_text"}}, "model_type 'llama4_text'\n  Save the"),
    ],
)
def test_what_no_fragment_covers_is_named(refuse, settings, message):
    output = refuse(**settings)
    assert output.startswith("error: config.json: ") and message in output


@pytest.mark.parametrize("setting", ["mlp_bias", "qk_layernorm", "shared_expert_intermediate_size"])
def test_nothing_is_offered_that_import_would_refuse(refuse, setting):
    """The checkpoint has tensors by this setting, for which a package that ignores it has no place."""
    output = refuse(**{setting: True})
    assert setting in output and "--ignore" not in output


def test_settings_of_generation_change_nothing(fit):
    """As older files of transformers have them, each and all; a scaled RoPE of an older spelling and biases are woven."""
    settings = {"max_length": 20, "do_sample": True, "top_k": 50, "early_stopping": False, "torchscript": False}
    scaling = {"type": "linear", "factor": 8.0, "finetuned": True}
    settings |= {"rope_scaling": scaling, "attention_bias": True, "repetition_penalty": 1.2, "bad_words_ids": [[1]]}
    table = fit(**settings)
    biases = {"model/query_key_value_bias", "model/output_bias"}
    assert {*table["fragments"]} == {"model/scaled_rope", "model/rope_linear", *biases}
    assert table["presets"]["mine"]["rope_factor"] == 8.0


def test_all_that_is_not_covered_is_told_at_once_and_can_be_accepted(make, fit, refuse):
    settings = {"logit_scale": 0.5, "hidden_act": "gelu", "stripes": 3, "auto_map": {"AutoConfig": "x"}}
    settings["rope_parameters"] = SCALED
    names = "hidden_act", "logit_scale", "rope_parameters", "stripes"
    output = refuse(**settings)
    assert all(f"Or accept what it would change: --ignore {name}" in output for name in names)
    assert "auto_map" not in output
    table = fit(ignore=names, **settings)
    assert table["settings"]["ignored"] == [*names]
    build()
    package = Path("generated/mine_cpu/huggingface.py").read_text()
    assert '["hidden_act","logit_scale","rope_parameters","stripes"]' in "".join(package.split()).replace(",]", "]")
    assert "has no setting 'strips', which --ignore names" in make(name="other", ignore=("strips",), **settings)[0]


@pytest.mark.parametrize(("setting", "value"), [("hidden_size", 64.5), ("rms_norm_eps", "1e-6")])
def test_what_the_package_needs_cannot_be_ignored(refuse, setting, value):
    """Nor is it offered."""
    output = refuse(**{setting: value})
    assert f"config.json: {setting} is " in output and "--ignore" not in output
    output = refuse(**{setting: value}, ignore=(setting,))
    assert setting in output and "or ignored" in output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ('{"model_type": "llama", "x": ' + "[" * 100_000, "cannot be read"),
        ("{}", "has no model_type"),
        ('{"model_type": null}', "has no model_type"),
        ('{"model_type": 1}', "model_type is 1, not a name"),
        ('{"model_type": "llama", "x": "\\ud800"}', "cannot be read"),
        ('{"model_type": "llama", "x": ' + "[" * 30 + "]" * 30 + "}", "is nested too deeply"),
    ],
    ids=["half", "deep", "empty", "null", "number", "half a character", "nested"],
)
def test_no_config(refuse, text, message):
    output = refuse(text=text)
    assert message in output


def test_a_repository_is_downloaded_first(make):
    done = CliRunner().invoke(gen, ["new", "--from-hf", "Qwen/Qwen3-0.6B", "--target", "cpu", "--name", "mine"])
    assert (
        done.exit_code == 2 and "hf download Qwen/Qwen3-0.6B --include '*.json' --local-dir Qwen3-0.6B" in done.output
    )


def test_what_is_not_there(make):
    done = CliRunner().invoke(gen, ["new", "--from-hf", ".", "--target", "cpu", "--name", "mine"])
    assert done.exit_code == 2 and "config.json: does not exist" in done.output


def test_what_is_no_file_and_no_name(make):
    os.mkfifo("pipe")  # which is not waited for
    done = CliRunner().invoke(gen, ["new", "--from-hf", "pipe", "--target", "cpu", "--name", "mine"])
    assert done.exit_code == 2 and "error: pipe: is not a regular file" in done.output
    assert "cannot name an architecture" in make(name="My-Model")[0]
    assert "there is an architecture 'llama2' already" in make(name="llama2")[0]


def test_no_page_is_long(refuse):
    output = refuse(**{f"x{number}": "y" * 10_000 for number in range(1000)})
    assert len(output) < 50_000 and "and 950 settings more" in output


@pytest.mark.parametrize(
    ("family", "settings", "message"),
    [
        ("deepseek_v3", {"num_hidden_layers": None}, "config.json: num_hidden_layers is null, left out or ignored"),
        ("gpt_oss", {"layer_types": -1}, "TypeError: 'int' object is not subscriptable\n  Fix the settings"),
        ("gpt2", {"n_head": 5}, "n_embd [width] 768: must be a multiple of n_head [heads] 5"),
        ("qwen3_moe", {"decoder_sparse_step": 0}, "decoder_sparse_step is 0: the `where` at templates/"),
        ("smollm3", {"no_rope_layers": [1]}, "config.json: no_rope_layers is [1]: the `where` at"),
        ("smollm3", {"no_rope_layer_interval": 0, "no_rope_layers": None}, "no_rope_layer_interval is 0, and this"),
        ("deepseek_v3", {"attention_bias": True}, "attention_bias is true, and deepseek_v3 is woven for false"),
        ("deepseek_v3", {"first_k_dense_replace": 61}, "no layer is sparse, and deepseek_v3 is woven for some"),
        ("qwen3_moe", {"mlp_only_layers": [99]}, "mlp_only_layers is [99], and qwen3_moe is woven for []"),
        ("gpt_oss", {"layer_types": [[1]]}, "is [[1]]: layer 0 is of no kind, by the `where` of each kind\n"),
    ],
)
def test_what_says_the_layers_is_no_such_thing(refuse, family, settings, message):
    output = refuse(text=json.dumps(published(family, **settings)))
    assert message in output


def test_rules_state_what_config_json_says_and_keep_each_other_s_settings(fit):
    table = fit(text=json.dumps(published("glm4_moe", use_qk_norm=False)))
    assert table["hf"] == {"settings": {"use_qk_norm": False}}
    assert table["without"] == ["model/qk_norm"]
    config = published("deepseek_v3", rope_interleave=False)
    config["rope_scaling"]["truncate"] = False
    table = fit(name="other", text=json.dumps(config))
    assert table["settings"] == {"rope_interleave": False, "yarn_truncate": False}


def test_layers_that_are_left_over(fit):
    """A pattern of four has none for the fifth: woven for what config.json lists, layer by layer."""
    table = fit(text=json.dumps(published("cohere2", num_hidden_layers=5, layer_types=None)))
    assert table["presets"]["mine"]["layers"] == 5 and len(table["layers"]) > 1


def test_no_dense_layers(fit):
    table = fit(text=json.dumps(published("deepseek_v3", first_k_dense_replace=0)))
    assert [group["pattern"] for group in table["layers"]] == [["sparse"]]
    build()
