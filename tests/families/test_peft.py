"""Adapters that peft loads beside a model of transformers compute there what they do here, or are not written."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from flax import nnx
from safetensors.numpy import load_file
from selected import mostly_slow

from families import parity
from families.cases import FAMILIES
from families.weaving import LIBRARY, fitted, in_double, write
from generator.checkpoint.loading import load_package
from generator.recipe.recipe import select
from generator.weaver import weave

peft = pytest.importorskip("peft", reason="adapters are compared with peft's: pip install peft")
weight_conversion = pytest.importorskip("peft.utils.transformers_weight_conversion")
tuners_utils = pytest.importorskip("peft.tuners.tuners_utils")

ATTENTION = "query,key,value,out"
EXPERTS, SHARED = (f"{block}.gate,{block}.up,{block}.down" for block in ("experts", "shared"))
LATENTS = "query_latent,attention.query,latent,key_value,out"
# family, --lora-targets that peft has too, and what `export-adapters` says of all; others have all
LORA = {
    "mamba2": ("gate,value,write,read,step", "passes over adapters of this name"),
    "falcon_h1": ("query,key,attention.out,mamba.value,step,gate,up,down", "passes over adapters of this name"),
    "deepseek_v2": (f"{LATENTS},{EXPERTS}", "takes a module of this name for experts"),
    "deepseek_v3": (LATENTS, "takes a module of this name for experts"),
    "deepseek_v32": (f"{LATENTS},{EXPERTS}", "takes a module of this name for experts"),
    "glm_moe_dsa": (f"{LATENTS},{EXPERTS}", "takes a module of this name for experts"),
    "dots1": (f"{ATTENTION},{EXPERTS}", "takes a module of this name for experts"),
    "ernie4_5_moe": (f"{ATTENTION},{EXPERTS}", "takes a module of this name for experts"),
    "exaone_moe": (f"{ATTENTION},{EXPERTS}", "takes a module of this name for experts"),
    "glm4_moe": (f"{ATTENTION},{EXPERTS}", "takes a module of this name for experts"),
    "hunyuan_v1_moe": (f"{ATTENTION},{EXPERTS}", "takes a module of this name for experts"),
    "solar_open": (f"{ATTENTION},{EXPERTS}", "takes a module of this name for experts"),
    "qwen3_next": (f"{ATTENTION},delta.gate", "takes a module of this name for experts"),
    "qwen2_moe": (f"{ATTENTION},shared.gate", "transformers has these experts in one tensor"),
    "phimoe": (ATTENTION, "transformers has these experts in one tensor"),
    "jamba": (
        "query,mamba.gate,mamba.value,low_step,out,mlp.gate,mlp.up,mlp.down",
        "transformers has these experts in one tensor",
    ),
    "kimi_linear": ("step,delta.query,attention.out,shared.up,mlp.up", "transformers has these experts in one tensor"),
    "lfm2_moe": ("query,gates,mlp.gate", "transformers has these experts in one tensor"),
    "nemotron_h": ("query,value,step,up", "passes over adapters of this name"),
    "gpt_oss": (ATTENTION, "peft has no adapter of its weights"),
    "granitemoe": (ATTENTION, "peft has no adapter of its weights"),
    "granitemoehybrid": (f"{ATTENTION},mamba.gate,write,read,step,{SHARED}", "peft has no adapter of its weights"),
    "gemma4_moe": (f"{ATTENTION},{SHARED}", "peft has no adapter of its weights"),
    "llama4": (f"{ATTENTION},{SHARED}", "peft has no adapter of its weights"),
    "llama4_maverick": (f"{ATTENTION},mlp.gate,mlp.up,mlp.down,{SHARED}", "peft has no adapter of its weights"),
    "qwen3_5_moe": (f"{ATTENTION},delta.gate,beta,step,{SHARED}", "transformers has these experts in one tensor"),
    "recurrent_gemma": (f"{ATTENTION},gate,up,down", "peft has no adapter of its weights"),
}
# of peft, DoRA is a setting of LoRA: families whose kernels lie in files in another way each
DORA = {
    "llama2": ("all", ""),
    "gpt2": ("all", ""),
    "phi3": ("all", ""),
    "falcon": ("all", ""),
    "bloom": ("all", ""),
    "gpt_neox": ("all", ""),
    "mixtral": (ATTENTION, "peft has no DoRA with adapters of experts"),
}
# modules that transformers calls otherwise than the files it writes: there, in files
RENAMED = {
    "nemotron_h": {"base_model.model.model.": "base_model.model.backbone."},
    "kimi_linear": {".forget_gate.": ".", ".mlp.": ".block_sparse_moe."},
}
# whose float32 is more than 1e-5 from float64, for packages and transformers alike
IN_DOUBLE = {
    "gemma4",
    "gemma4_moe",
    "kimi_linear",
    "lfm2_moe",
    "olmo_hybrid",
    "phi4_mini",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_next",
}
CASES = {(name, "lora"): LORA.get(name, ("all", "")) for name in FAMILIES}
CASES |= {(name, "dora"): case for name, case in DORA.items()}


def logits_of(model: torch.nn.Module, tokens: np.ndarray) -> torch.Tensor:
    return model(parity.as_torch(tokens), use_cache=False).logits


def reference_in_double(reference_class, folder) -> torch.nn.Module:
    eager = dict(attn_implementation="eager", experts_implementation="eager")
    return reference_class.from_pretrained(folder, **eager, dtype="float64").eval()


# peft reads a deprecated attribute of transformers, and says that GPT-2's kernels are [in, out]
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing.:FutureWarning", "ignore:fan_in_fan_out:UserWarning")
# peft looks for patterns of ranks and scales among modules alone, and applies them to parameters of experts all the same
@pytest.mark.filterwarnings("ignore:The following .* keys did not match any targeted module:RuntimeWarning")
@pytest.mark.parametrize(("name", "part"), mostly_slow(CASES, ("gpt2", "lora"), ("phi3", "lora"), ("phi3", "dora")))
def test_adapters_are_those_of_peft(name, part, tmp_path):
    """Logits, gradients, files of ours there, files of theirs here."""
    with contextlib.ExitStack() as double:
        if name in IN_DOUBLE:
            double.enter_context(jax.enable_x64())
            # transformers has softmax and recurrences in float32 whatever the dtype of the model
            double.enter_context(mock.patch.object(torch, "float32", torch.float64))
            double.enter_context(mock.patch.object(torch.Tensor, "float", torch.Tensor.double))
        compare_with_peft(name, part, "float64" if name in IN_DOUBLE else "float32", tmp_path)


def compare_with_peft(name: str, part: str, dtype: str, tmp_path: Path) -> None:
    family, (targets, refused) = FAMILIES[name], CASES[name, part]
    reference_class = getattr(transformers, family.model)
    settings = family.settings | next(iter(family.cases.values())).settings
    hf = getattr(transformers, family.config)(**settings, attn_implementation="eager", dtype=dtype)
    parity.make_reference(reference_class, hf).to(getattr(torch, dtype)).save_pretrained(tmp_path / "base")
    library = fitted(family.architecture, f"fit_{name}", tmp_path / "base")
    written_package = write(weave(f"fit_{name}", "cpu", library, parts=(part,)), tmp_path)
    package = load_package(in_double(written_package) if name in IN_DOUBLE else written_package)
    folder = package.model.__name__.split(".")[0]
    peft_module, commands = (importlib.import_module(f"{folder}.{module}") for module in ("peft", "checkpoint"))
    config, base = package.huggingface.load_hf(tmp_path / "base")
    named, random = package.parallel.named_arrays, np.random.default_rng(0)
    tokens = random.integers(2, hf.vocab_size, (2, 18), dtype=np.int32)

    def adapted(targets: str):
        config_ = dataclasses.replace(config, lora_rank=3, lora_alpha=6.0, lora_targets=targets)
        model, kernels = jax.eval_shape(lambda: package.model.Decoder(config_, nnx.Rngs(0))), named(base)
        values = {path: random.normal(0, 0.1, x.shape) for path, x in named(model).items() if ".adapter." in path}
        values = [jnp.asarray(values[path] if path in values else kernels[path], dtype) for path in named(model)]
        return config_, jax.tree.unflatten(jax.tree.structure(model), values)

    if refused:
        with pytest.raises(package.errors.InputError, match=refused):
            peft_module.save_adapters(*adapted("all"), tmp_path / "refused", "")
        assert not (tmp_path / "refused").exists()
    config, model = adapted(targets)
    peft_module.save_adapters(config, model, tmp_path / "ours", "")
    written = load_file(tmp_path / "ours/adapter_model.safetensors")
    graph, adapters, rest = nnx.split(model, nnx.LoRAParam, ...)
    bare = jax.tree.map(jnp.zeros_like, rest)  # norms of DoRA are written with those of the kernels

    def save_alone(adapters, folder):
        peft_module.save_adapters(config, nnx.merge(graph, adapters, bare), tmp_path / folder, "")

    save_alone(adapters, "alone")
    again = peft_module.read_adapter(str(tmp_path / "alone"), config)
    mine = {path: np.asarray(x) for path, x in named(model).items() if ".adapter." in path and x.size}
    assert mine.keys() == again.arrays.keys() and all(np.array_equal(mine[path], x) for path, x in again.arrays.items())

    loaded = peft.PeftModel.from_pretrained(
        reference_in_double(reference_class, tmp_path / "base"), tmp_path / "ours", is_trainable=True
    ).double()
    with torch.no_grad(), loaded.disable_adapter():
        logits = logits_of(loaded, tokens).numpy()
    found = logits_of(loaded, tokens[:, :-1])
    labels = parity.as_torch(tokens[:, 1:]).flatten()
    torch.nn.functional.cross_entropy(found.flatten(0, 1), labels).backward()

    def loss(adapters):
        x = nnx.merge(graph, adapters, rest)(tokens[:, :-1]).astype(dtype)
        return -jnp.take_along_axis(jax.nn.log_softmax(x), tokens[:, 1:, None], -1).mean(), x

    gradient, ours = jax.jit(jax.grad(loss, has_aux=True))(adapters)
    np.testing.assert_allclose(ours, found.detach().numpy(), rtol=1e-5, atol=1e-5)
    assert np.abs(ours - logits[:, :-1]).max() > 1e-2  # or it would show nothing
    ones = jax.tree.map(jnp.ones_like, adapters)  # zero in the file is what several maps of a module do not share
    for kind, values in ("gradient", gradient), ("ones", ones):
        save_alone(values, kind)
    gradients, places = (load_file(tmp_path / kind / "adapter_model.safetensors") for kind in ("gradient", "ones"))
    parameters = {path: x.grad for path, x in loaded.named_parameters() if x.requires_grad}
    renamed = {".default": "", "magnitude_vector.weight": "magnitude_vector"} | RENAMED.get(name, {})
    for name_there, name_in_file in renamed.items():
        parameters = {path.replace(name_there, name_in_file): x for path, x in parameters.items()}
    compared = parameters.keys() & written.keys()  # there, experts have one for all
    assert compared and {path for path in parameters if ".experts." not in path} <= compared
    for path in compared:
        expected = parameters[path].numpy() * places[path]
        np.testing.assert_allclose(gradients[path], expected, rtol=0, atol=1e-5 * np.abs(expected).max(initial=1e-3))

    names = json.loads((tmp_path / "ours/adapter_config.json").read_text())["target_modules"]
    names = [it for it in names if not any(".experts." in path and f".{it}.lora" in path for path in written)]
    trained = peft.get_peft_model(
        reference_in_double(reference_class, tmp_path / "base"),
        peft.LoraConfig("CAUSAL_LM", target_modules=names, r=4, lora_alpha=8, use_dora=part == "dora"),
    ).to(getattr(torch, dtype))
    for path, x in trained.named_parameters():
        if ".lora_" in path:
            x.data += 0.1 * torch.randn_like(x)
    trained.save_pretrained(tmp_path / "theirs")
    _, imported = commands.with_peft_adapter(
        *package.huggingface.open_hf_model(tmp_path / "base"), str(tmp_path / "theirs")
    )
    imported = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), imported)
    found = logits_of(trained.double().eval(), tokens).detach().numpy()
    np.testing.assert_allclose(parity.forward(package)(imported, tokens), found, rtol=1e-5, atol=1e-5)
    assert np.abs(found - logits).max() > 1e-2


@pytest.mark.parametrize("name", LIBRARY.architectures())
def test_what_is_stated_of_peft_is_so(name):
    """Whose experts' names it converts, and whose modules it refuses."""
    settings = select(name, "cpu", LIBRARY, parts=("lora",)).settings
    converts = weight_conversion._MODEL_TO_CONVERSION_PATTERN.get(settings["model_type"])
    assert settings["experts_in_peft"] == (converts in ("mixtral", "qwen2_moe"))
    model = SimpleNamespace(config=SimpleNamespace(model_type=settings["model_type"]))
    with (
        pytest.raises(ValueError, match="out_proj")
        if ".out_proj" in settings["not_in_peft"]
        else contextlib.nullcontext()
    ):
        tuners_utils._check_lora_target_modules_mamba(peft.LoraConfig(), model, "out_proj")
