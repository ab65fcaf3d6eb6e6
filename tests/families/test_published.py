"""The configurations of well-known checkpoints, as they were published: `gen new` fits each, and `load_hf` reads it.

What is compared is structure, which is kept; sizes are shrunk, all in the same way. `published/README.md` says where
the configurations come from. With ALL_PUBLISHED=1 the logits of all of them are compared.
"""

from __future__ import annotations

import json
import os
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file
from selected import mostly_slow

from families.cases import PUBLISHED
from families.weaving import LIBRARY, with_architecture, woven
from generator.checkpoint import fit as fitting
from generator.errors import LoomError
from generator.recipe.recipe import find_inherited, lineage_of

# one of each model type, and of older ways to spell it; `make test` runs the first ones
SHORT = """
    lmsys/vicuna-7b-v1.5-16k Qwen/Qwen2.5-7B google/gemma-3-4b-pt microsoft/Phi-3.5-mini-instruct openai/gpt-oss-20b
    deepseek-ai/DeepSeek-V3.1 zai-org/GLM-4.5
""".split()
QUICK = [
    *SHORT,
    *"""
    huggyllama/llama-7b meta-llama/Llama-3.2-1B mistralai/Mistral-7B-v0.1 mistralai/Mixtral-8x22B-v0.1
    Qwen/Qwen3-0.6B Qwen/Qwen3-Coder-30B-A3B-Instruct google/gemma-2-9b google/gemma-3-270m
    microsoft/Phi-4-mini-instruct HuggingFaceTB/SmolLM3-3B CohereForAI/c4ai-command-r7b-12-2024
    allenai/OLMoE-1B-7B-0924 distilbert/distilgpt2 meta-llama/Llama-4-Scout-17B-16E-Instruct allenai/OLMo-2-0325-32B
    ibm-granite/granite-3.3-8b-instruct THUDM/GLM-4-9B-0414 ByteDance-Seed/Seed-OSS-36B-Instruct
    baidu/ERNIE-4.5-0.3B-PT nvidia/Nemotron-Mini-4B-Instruct LGAI-EXAONE/EXAONE-4.0-32B LGAI-EXAONE/EXAONE-4.0-1.2B
    zai-org/GLM-4.5-Air tencent/Hunyuan-7B-Instruct allenai/Olmo-3-1025-7B swiss-ai/Apertus-8B-2509
    bigcode/starcoder2-7b stabilityai/stablelm-2-zephyr-1_6b EleutherAI/pythia-160m CohereForAI/aya-23-8B
    togethercomputer/RedPajama-INCITE-Chat-3B-v1
    Qwen/Qwen1.5-MoE-A2.7B-Chat deepseek-ai/DeepSeek-V2-Lite ibm-granite/granite-3.1-3b-a800m-instruct
    moonshotai/Kimi-Linear-48B-A3B-Instruct
""".split(),
]
TYPES = {name: find_inherited(lineage_of(name, LIBRARY), "model_type") for name in LIBRARY.architectures()}
SIZES = {
    **dict(intermediate_size=48, intermediate_size_mlp=40, moe_intermediate_size=24, vocab_size=128, head_dim=16),
    **dict(shared_expert_intermediate_size=48),
    **dict(num_experts=16, num_local_experts=16, n_routed_experts=16, initializer_range=0.1),
    **dict(q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16),
    **dict(n_embd=32, n_head=2, n_layer=2),
}


def shrunk(hf: dict) -> dict:
    """A configuration with every setting that it has, and with small sizes: groups of heads and patterns are kept."""
    small = hf | {name: size for name, size in SIZES.items() if hf.get(name) is not None}
    small |= {name: 7 for name in hf if name.endswith("_token_id") and isinstance(hf[name], int)}
    if "n_layer" in hf:
        return small
    layers, kv_heads = (8 if "gemma3" in hf["model_type"] else 4), min(2, hf.get("num_key_value_heads", 2))
    group = hf["num_attention_heads"] // hf.get("num_key_value_heads", hf["num_attention_heads"])
    heads = group * kv_heads
    small |= {"num_hidden_layers": layers, "num_attention_heads": heads, "hidden_size": 16 * heads}
    if "num_key_value_heads" in hf:
        small["num_key_value_heads"] = kv_heads
    for name in "layer_types", "no_rope_layers":
        if name in hf:
            small[name] = hf[name][:layers]
    if linear := hf.get("linear_attn_config"):
        of_layers = {name: [n for n in linear[name] if n <= layers] for name in ("full_attn_layers", "kda_layers")}
        small["linear_attn_config"] = linear | of_layers | {"num_heads": heads, "head_dim": 8}
    if "moe_layers" in hf:
        small["moe_layers"] = [layer for layer in hf["moe_layers"] if layer < layers]
    if "long_factor" in (scaling := hf.get("rope_scaling") or {}):
        pairs = int(8 * hf.get("partial_rotary_factor", 1))
        small["rope_scaling"] = scaling | {name: scaling[name][:pairs] for name in ("long_factor", "short_factor")}
    return small


def fit(hf: dict) -> str:
    """The architecture file of `gen new`, whatever the family that covers it."""
    refusals = []
    for family in sorted((name for name, kind in TYPES.items() if kind == hf["model_type"]), key=len):
        try:
            return fitting.fit(LIBRARY, family, "cpu", hf, "mine", "config.json")
        except LoomError as error:
            refusals.append(str(error))
    raise AssertionError(refusals[0])


packages = {}


def loaded(hf: dict, folder: Path, factory):
    """What the package for a configuration reads: its module, Config and model, and the model of transformers."""
    architecture = fit(hf)
    key = architecture.partition("[presets.mine]")[0]
    if key not in packages:
        text = architecture.replace('title = "mine"', f'title = "Published {len(packages)}"')
        name = f"published_{len(packages)}"
        library = with_architecture(name, text)
        packages[key] = woven(name, "cpu", factory.mktemp(name), library)
    plain = {name: value for name, value in hf.items() if name not in ("quantization_config", "auto_map")}
    if "attn_temperature_tuning" in plain:  # released as 4, which transformers takes no more
        plain["attn_temperature_tuning"] = bool(plain["attn_temperature_tuning"])
    config = transformers.AutoConfig.for_model(**deepcopy(plain))  # which changes tables in place
    torch.manual_seed(0)
    reference = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    reference.eval().save_pretrained(folder)
    if mtp := hf.get("num_nextn_predict_layers"):  # transformers has none of these
        add_mtp_layers(folder, hf["num_hidden_layers"], mtp)
    (folder / "config.json").write_text(json.dumps(hf))
    return packages[key], *packages[key].huggingface.load_hf(folder), reference


def add_mtp_layers(folder: Path, layers: int, mtp: int) -> None:
    """Copies of the last layer, with what MTP layers have besides."""
    tensors = load_file(folder / "model.safetensors")
    norm, last = tensors["model.norm.weight"], f"model.layers.{layers - 1}."
    for number in range(layers, layers + mtp):
        prefix = f"model.layers.{number}."
        tensors |= {prefix + name.removeprefix(last): x for name, x in tensors.items() if name.startswith(last)}
        tensors |= {f"{prefix}{name}.weight": norm for name in ("enorm", "hnorm", "shared_head.norm")}
        tensors[f"{prefix}eh_proj.weight"] = np.ones((norm.size, 2 * norm.size), np.float32)
    save_file(tensors, folder / "model.safetensors")


def test_there_are_enough():
    assert len(PUBLISHED) >= 60 and set(QUICK) <= PUBLISHED.keys()


@pytest.mark.parametrize("repository", mostly_slow(QUICK, *SHORT))
def test_one_of_each_structure_is_loaded(repository, tmp_path, tmp_path_factory):
    hf = shrunk(PUBLISHED[repository])
    package, config, model, _ = loaded(hf, tmp_path / "hf", tmp_path_factory)
    assert config.layers == hf.get("num_hidden_layers", hf.get("n_layer"))
    assert all(np.isfinite(x).all() for x in package.parallel.named_arrays(model).values())
    package.huggingface.save_hf(config, model, tmp_path / "ours")
    ours = json.loads((tmp_path / "ours/config.json").read_text())
    left_out = {"dtype", "torch_dtype", "quantization_config", "auto_map", "_name_or_path"}
    assert {name: ours[name] for name in ours if name not in left_out} == {
        name: hf[name] for name in hf if name not in left_out
    }


@pytest.mark.slow
@pytest.mark.skipif("ALL_PUBLISHED" not in os.environ, reason="takes half an hour")
@pytest.mark.parametrize("repository", PUBLISHED)
def test_all_have_the_logits_of_transformers(repository, tmp_path, tmp_path_factory):
    hf = shrunk(PUBLISHED[repository]) | {"dtype": "float32", "torch_dtype": "float32"}
    compare_logits(hf, tmp_path, tmp_path_factory)
    fit(PUBLISHED[repository])  # in its own size


def compare_logits(hf: dict, folder: Path, factory) -> None:
    """Those of the package for a configuration and of the model of transformers."""
    _, config, model, reference = loaded(hf, folder / "hf", factory)
    tokens = np.random.default_rng(0).integers(8, config.vocab_size, (1, 24), dtype=np.int32)
    expected = reference(torch.from_numpy(tokens).long(), use_cache=False).logits.detach().numpy()
    np.testing.assert_allclose(model(tokens), expected, atol=2e-4, rtol=1e-4)


S, F = "sliding_attention", "full_attention"
UNRELEASED = {  # structures that config.json can have, and that no published one has; by model type
    "deepseek_v3, no dense layers": {"first_k_dense_replace": 0},
    "glm4_moe, no dense layers": {"first_k_dense_replace": 0},
    "cohere2, layers left over": {"num_hidden_layers": 5, "layer_types": None},
    "cohere2, another order": {"layer_types": [F, S, S, F]},
    "exaone4, layers left over": {"num_hidden_layers": 5, "layer_types": [S, S, S, F, S]},
    "exaone4, another order": {"layer_types": [F, S, S, F]},
    "exaone4, all with a window": {"layer_types": [S, S, S, S]},
    "gemma2, layers left over": {"num_hidden_layers": 5},
    "gemma2, another order": {"layer_types": [F, S, S, S]},
    "gemma2, all in full": {"layer_types": [F, F, F, F]},
    "gemma2, all with a window": {"layer_types": [S, S, S, S]},
    "gemma3_text, another order": {"num_hidden_layers": 4, "layer_types": [F, S, S, F]},
    "gemma3_text, all in full": {"num_hidden_layers": 4, "layer_types": [F, F, F, F]},
    "gemma3_text, less than a period": {"num_hidden_layers": 4, "layer_types": [S, S, S, S]},
    "gpt_oss, layers left over": {"num_hidden_layers": 5, "layer_types": [S, F, S, F, S]},
    "gpt_oss, another order": {"layer_types": [F, S, S, F]},
    "gpt_oss, all in full": {"layer_types": [F, F, F, F]},
    "qwen2, types of layers": {
        **{"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2, "layer_types": [S, F, S, F]}
    },
    "smollm3, layers left over": {"num_hidden_layers": 5, "no_rope_layers": [1, 1, 1, 0, 1], "layer_types": None},
    "glm4, an odd number rotated": {"head_dim": 14},
    "glm4_moe, an odd number rotated": {"head_dim": 14},
    "nemotron, an odd number rotated": {"head_dim": 14},
}


@pytest.mark.parametrize("case", mostly_slow(UNRELEASED, "cohere2, another order", "glm4, an odd number rotated"))
def test_structures_that_nobody_released(case, tmp_path, tmp_path_factory):
    settings, model_type = UNRELEASED[case], case.partition(",")[0]
    published = next(PUBLISHED[name] for name in QUICK if PUBLISHED[name]["model_type"] == model_type)
    hf = shrunk(published) | {"dtype": "float32", "torch_dtype": "float32"}
    hf |= {name: 8 for name in ("sliding_window", "sliding_window_size") if hf.get(name)}
    hf = {name: value for name, value in (hf | settings).items() if value is not None}
    compare_logits(hf, tmp_path, tmp_path_factory)
