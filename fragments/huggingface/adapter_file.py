"""LoRA adapters alone, as `save_pretrained` of peft writes them.

Source: Hu et al. 2021, arXiv 2106.09685, section 4.1; peft's documentation, "PEFT checkpoint format".
"""

import json
from pathlib import Path

import numpy as np
from einops import rearrange
from safetensors.numpy import save_file

from generator.language import requires
from generator.language.roles import Config, Decoder, InputError, adapter_layouts, named_arrays

requires("model/lora")


def save_adapters(config: Config, model: Decoder, directory: Path, base: str) -> None:
    """Writes a new directory for `PeftModel.from_pretrained`: the adapters of a model, and what they are for.

    Raises InputError for adapters that peft does not have: of experts, and of parameters that share a tensor.
    """
    arrays = named_arrays(model)
    tensors, modules = {}, set()
    arrays = {name: np.asarray(x) if ".adapter." in name else x for name, x in arrays.items()}
    left = {name.rpartition(".")[0] for name, x in arrays.items() if name.endswith(".adapter.down") and x.size}
    for path, layer, module, layouts in adapter_layouts(arrays, config):
        for side, (name, layout) in zip("AB", layouts.items(), strict=True):
            values = rearrange(arrays[name][layer], layout)
            tensors[f"base_model.model.{module}.lora_{side}.weight"] = np.ascontiguousarray(values, np.float32)
        modules.add(module.rpartition(".")[2])
        left.discard(path)
    if left:
        raise InputError(
            f"{min(left)} is of an expert, or of a tensor that holds several parameters: peft has none of a part: "
            "train with --lora-targets that leave it out"
        )
    directory.mkdir(parents=True)  # overwrites nothing
    save_file(tensors, directory / "adapter_model.safetensors", metadata={"format": "pt"})
    settings = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base or None}
    settings |= {"r": config.lora_rank, "lora_alpha": config.lora_alpha, "target_modules": sorted(modules)}
    settings |= {"lora_dropout": 0.0, "bias": "none", "inference_mode": True}
    (directory / "adapter_config.json").write_text(json.dumps(settings, indent=2))
