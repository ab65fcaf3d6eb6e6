"""LoRA adapters alone, as `save_pretrained` of peft writes them.

Source: Hu et al. 2021, arXiv 2106.09685, section 4.1; peft's documentation, "PEFT checkpoint format".
"""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from generator.language import point, requires, setting, splice
from generator.language.roles import (
    Config,
    Decoder,
    InputError,
    Linear,
    hf_tensors_of,
    linear_maps,
    named_arrays,
    peft_modules,
    views_of,
)

requires("model/lora")


def shortest_ends(names: Iterable[str], others: Iterable[str]) -> list[str]:
    """Returns the shortest ends of dotted names that no others have: peft finds modules by such."""

    def ends(name: str) -> list[str]:
        parts = name.split(".")
        return [".".join(parts[-count:]) for count in range(1, len(parts) + 1)]

    taken = {end for name in others for end in ends(name)}
    return sorted({next(end for end in ends(name) if end not in taken) for name in names})


def save_adapters(config: Config, model: Decoder, directory: Path, base: str) -> None:
    """Writes a new directory for `PeftModel.from_pretrained`: the adapters of a model, and what they are for.

    Maps that share a tensor have one adapter there, of the rank of them all. Raises InputError for adapters that peft
    does not have, such as those of experts that share a tensor, and of blocks on a diagonal.
    """
    arrays = {name: np.asarray(x) if ".adapter." in name else x for name, x in named_arrays(model).items()}
    maps = linear_maps(config)
    modules = peft_modules(maps, config)
    adapted = {
        name.rpartition(".adapter.")[0] for name, x in arrays.items() if name.endswith("adapter.down") and x.size
    }
    if left := adapted - {path for module in modules.values() for path in module.paths}:
        raise InputError(
            f"{min(left)}: peft has no adapter of its weights: train with --lora-targets that leave it out, or export "
            "the merged model"
        )
    shared = {
        path: [it for it in module.paths if it in adapted] for module in modules.values() for path in module.paths
    }
    shared = {path: paths for path, paths in shared.items() if paths}
    written = {name: module for name, module in modules.items() if module.paths[0] in shared}
    parts = [tensor.split(".") for tensor in hf_tensors_of(arrays, config)[0]]
    others = {".".join(it[:count]) for it in parts for count in range(1, len(it))} - written.keys()
    point("save_adapters.modules", others, written, modules, maps, adapted)
    if setting("not_in_peft"):
        if lost := [name for name in written if name.endswith(tuple(setting("not_in_peft")))]:
            raise InputError(
                f"{lost[0]}: peft, or transformers, passes over adapters of this name in this model type: train with "
                "--lora-targets that leave it out, or export the merged model"
            )
    wide = {}  # each of several maps in a module has ranks of its own
    for path, paths in shared.items():
        wide[f"{path}.adapter.up"] = up = maps[path].empty("up", config.lora_rank * len(paths))
        if path in adapted:
            ranks = np.moveaxis(up, maps[path].rank_axis, 0)[config.lora_rank * paths.index(path) :]
            ranks[: config.lora_rank] = np.moveaxis(arrays[f"{path}.adapter.up"], maps[path].rank_axis, 0)
    downs = {path: views_of(arrays, maps, [path], "down", config) for path in adapted}
    ups = views_of(wide, maps, shared, "up", config)
    tensors, counts = {}, {}
    for name, module in written.items():
        paths = shared[module.paths[0]]
        down = np.concatenate([module.matrix(downs[path][f"{name}.weight"]) for path in paths])
        for side, matrix in ("A", down), ("B", module.matrix(ups[f"{name}.weight"])):
            tensors[f"base_model.model.{name}.lora_{side}.weight"] = np.ascontiguousarray(matrix, np.float32)
        counts.setdefault(len(paths), set()).add(name)
    point("save_adapters.tensors", tensors, arrays, maps, shared, config)
    directory.mkdir(parents=True)  # overwrites nothing
    save_file(tensors, directory / "adapter_model.safetensors", metadata={"format": "pt"})
    settings = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base or None}
    settings |= {"r": config.lora_rank, "lora_alpha": config.lora_alpha}
    settings["target_modules"] = shortest_ends(written, others)
    counts.pop(1, None)
    several = {end: n for n, names in counts.items() for end in shortest_ends(names, written.keys() - names)}
    if several:  # with the same scale as all
        settings["rank_pattern"] = {name: count * config.lora_rank for name, count in several.items()}
        settings["alpha_pattern"] = {name: count * config.lora_alpha for name, count in several.items()}
    settings |= {"lora_dropout": 0.0, "bias": "none", "inference_mode": True}
    point("save_adapters.settings", settings)
    (directory / "adapter_config.json").write_text(json.dumps(settings, indent=2))


@splice("load_adapters.map", optional=True)
def _(name, linear):
    if not isinstance(linear, Linear):
        raise InputError(f"--lora-modules: {name} is of experts, whose adapters are not served: merge it by an export")
