"""`gen new`: an architecture file from a checkpoint's config.json."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest
import transformers
from click.testing import CliRunner

from generator.checkpoint.draft import find_nearest_family
from generator.commands.cli import gen
from generator.recipe.library import Library
from generator.recipe.pattern import find_groups
from generator.recipe.recipe import find_inherited, lineage_of

ROOT = Path(__file__).parents[2]
LLAMA = {
    **{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "max_position_embeddings": 256},
    **{"vocab_size": 100, "rms_norm_eps": 1e-6, "num_attention_heads": 4, "num_key_value_heads": 2},
    **{"intermediate_size": 96, "hidden_act": "silu", "rope_theta": 5000.0, "initializer_range": 0.02},
    **{"torch_dtype": "bfloat16", "use_cache": True},
}
ARCHITECTURES = Path("templates/architectures")


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
        path = ARCHITECTURES / f"{name}.toml"
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
    done = CliRunner().invoke(gen, ["build", "mine", "--target=cpu"])
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


OLMO = {"model_type": "olmo3", "architectures": ["Olmo3ForCausalLM"], "tie_word_embeddings": True}
OLMO_LAYER = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "self_attn.q_norm"]
OLMO_LAYER += ["self_attn.k_norm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
OLMO_LAYER += ["post_attention_layernorm", "post_feedforward_layernorm"]
OLMO_TENSORS = ["model.norm.weight", "model.embed_tokens.weight"]
OLMO_TENSORS += [f"model.layers.{layer}.{name}.weight" for layer in range(3) for name in OLMO_LAYER]
INDEX = Path("model.safetensors.index.json")


def test_an_unknown_model_type_is_not_what_it_is_spelt_like(refuse):
    """By its settings olmo3 is a llama, by its tensors an olmo2."""
    output = refuse(**OLMO)
    assert "the nearest is llama2. Differences:\n  - tensors were not compared: there is" in output
    INDEX.write_text(json.dumps({"weight_map": dict.fromkeys([*OLMO_TENSORS, "model.stripes.weight"], "x")}))
    output = refuse(**OLMO, stripes=3)
    assert (
        "By names, the nearest is olmo2. Differences:\n"
        "  - no fragment of olmo2 reads the setting stripes, which is 3\n" in output
    )
    assert "\n  - no fragment has a place for the tensor model.stripes.weight\n  Add --as olmo2 to write" in output


STATEFUL = """
    bamba falcon_h1 falcon_mamba granitemoehybrid jamba kimi_linear lfm2 mamba mamba2 minimax nemotron_h olmo_hybrid
    qwen3_next recurrent_gemma zamba2
""".split()


@pytest.mark.parametrize("model_type", STATEFUL)
def test_a_recurrent_model_is_called_so_in_the_first_line(refuse, model_type):
    """As transformers writes it with all its defaults."""
    config = transformers.CONFIG_MAPPING[model_type]().to_dict() | {"architectures": ["XForCausalLM"]}
    first = refuse(text=json.dumps(config, default=str)).splitlines()[0]
    kind = "a recurrent model" if "mamba" in model_type[-7:] else "a hybrid of attention and layers with a recurrent"
    assert kind in first and first.endswith("Loomax has only models whose layers all have attention")


def test_a_model_that_is_near_to_none(refuse):
    """Each difference is told, whatever it is: a list where others have a number too."""
    output = refuse(text=json.dumps(transformers.CONFIG_MAPPING["gemma3n_text"]().to_dict()))
    assert "By names, none is near; gemma3 is the least far. Differences:\n" in output and output.count("\n  - ") > 10
    assert "intermediate_size is [" in output and "the setting altup_num_inputs" in output


def test_a_file_to_start_from(make):
    """What differs stands in it as comments; what rules cover, they cover; and it builds."""
    header = json.dumps({name: {} for name in OLMO_TENSORS}).encode()
    Path("model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    output, code, table = make(**OLMO, family="llama2", **{"a\nb": 1})
    assert (code, "mine.toml: as llama2; next: work through the 5 differences" in output) == (0, True), output
    text = (ARCHITECTURES / "mine.toml").read_text()
    assert "# - no fragment has a place for the tensor model.layers.{}.self_attn.q_norm.weight\n" in text
    assert (table["base"], table["model_type"], table["reference"]) == ("llama2", "olmo3", "Olmo3ForCausalLM")
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


@pytest.mark.parametrize("share", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_the_nearest_of_each_published_family_is_that_family(share):
    """By settings alone, under a model_type that nothing has; what two families read alike is either's. Every 4th."""
    library = Library.read([ROOT])
    alike = {"mistral": "qwen2", "qwen3": "qwen2", "gemma3": "gemma3_text", "llama4": "llama4_text", "olmo2": "llama"}
    alike["ernie4_5"] = "llama"
    for path in sorted((ROOT / "tests/families/published").glob("*.json"))[::share]:
        found, is_near = find_nearest_family(library, "cpu", published(path.stem, model_type="nobodys"), set())
        assert find_inherited(lineage_of(found, library), "model_type") == alike.get(path.stem, path.stem) and is_near


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
    assert table["kinds"]["sparse"]["fragments"][:2] == ["model/experts", "model/expert_load"]
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
