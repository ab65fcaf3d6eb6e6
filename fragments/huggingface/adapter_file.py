"""LoRA adapters alone, as `save_pretrained` of peft writes them.

Source: Hu et al. 2021, arXiv 2106.09685, section 4.1; peft's documentation, "PEFT checkpoint format".
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from einops import rearrange
from safetensors.numpy import save_file

from generator.language import layers, requires
from generator.language.roles import Config, Decoder, InputError, hf_layer_tensors, named_arrays

requires("model/lora")


def adapter_views(arrays: dict[str, np.ndarray], config: Config) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yields Hugging Face name, lora_A [rank, in] and lora_B [out, rank] of each layer's adapters."""
    for stack, numbers in layers.stacks.items():
        names = [name for parameter, name, _ in hf_layer_tensors() if f"{stack}.{parameter}" in arrays]
        for parameter, name, layout in hf_layer_tensors():
            path = f"{stack}.{parameter.removesuffix('kernel')}adapter"
            if f"{path}.down" not in arrays:
                continue
            if name.count("{}") > 1 or names.count(name) > 1 or not name.endswith(".weight"):
                problem = f"{name} is of an expert, or holds several parameters, and peft has no adapter of a part"
                raise InputError(f"{problem}: train with --lora-targets that leave {parameter} out")
            down, up = np.asarray(arrays[f"{path}.down"]), np.asarray(arrays[f"{path}.up"])
            axes, sides = layout.split(" -> ")
            inputs = axes.split()[: down.ndim - 2]
            outputs = axes.split()[down.ndim - 2 :]
            named = {tuple(re.findall(r"\w+", side)): side for side in re.findall(r"\([^)]*\)|\w+", sides)}
            for layer, number in enumerate(numbers):
                a = rearrange(down[layer], f"{' '.join(inputs)} rank -> rank {named[*inputs]}")
                b = rearrange(up[layer], f"rank {' '.join(outputs)} -> {named[*outputs]} rank")
                yield name.format(number).removesuffix(".weight"), a, b


def save_adapters(config: Config, model: Decoder, directory: Path, base: str) -> None:
    """Writes a new directory for `PeftModel.from_pretrained`: the adapters of a model, and what they are for.

    Raises InputError for adapters that peft does not have: of experts, and of parameters that share a tensor.
    """
    tensors, modules = {}, set()
    for name, a, b in adapter_views(named_arrays(model), config):
        tensors[f"base_model.model.{name}.lora_A.weight"] = np.ascontiguousarray(a, np.float32)
        tensors[f"base_model.model.{name}.lora_B.weight"] = np.ascontiguousarray(b, np.float32)
        modules.add(name.rpartition(".")[2])
    directory.mkdir(parents=True)  # overwrites nothing
    save_file(tensors, directory / "adapter_model.safetensors", metadata={"format": "pt"})
    settings = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base or None}
    settings |= {"r": config.lora_rank, "lora_alpha": config.lora_alpha, "target_modules": sorted(modules)}
    settings |= {"lora_dropout": 0.0, "bias": "none", "inference_mode": True}
    (directory / "adapter_config.json").write_text(json.dumps(settings, indent=2))
