"""LoRA adapters alone, as `save_pretrained` of peft writes them: their tensors, and how they are read.

Source: Hu et al. 2021, arXiv 2106.09685, section 4.1; Kalajdzievski 2023, arXiv 2312.03732, section 3.2 (rsLoRA);
peft's documentation, "PEFT checkpoint format".
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from einops import rearrange
from flax import nnx
from jax import Array
from safetensors import SafetensorError
from safetensors.numpy import load_file

from generator.language import layers, requires
from generator.language.roles import (
    Config,
    Decoder,
    InputError,
    Linear,
    hf_layer_tensors,
    named_arrays,
    read_json,
)

requires("lora or adapted_linear")

# settings of adapter_config.json that leave what an adapter computes as it is, or that are read
KNOWN = {
    *("auto_mapping", "base_model_name_or_path", "eva_config", "exclude_modules", "fan_in_fan_out", "inference_mode"),
    *("init_lora_weights", "layers_pattern", "layers_to_transform", "lora_alpha", "lora_dropout", "megatron_core"),
    *("peft_type", "peft_version", "qalora_group_size", "r", "revision", "runtime_config", "target_modules"),
    *("task_type", "use_rslora"),
}


FOREIGN = {
    "use_dora": "it scales the kernels too",
    "bias": "it has biases beside its matrices",
    "lora_bias": "it has biases beside its matrices",
    "modules_to_save": "it has whole modules beside its matrices",
    "rank_pattern": "its projections differ in rank",
    "alpha_pattern": "its projections differ in scale",
}


FLOATS = {np.dtype(kind) for kind in ("float32", "bfloat16", "float16")}


class PeftAdapter(NamedTuple):
    """An adapter of peft; `arrays` are its matrices by the names that they have in a model with LoRA, stacked."""

    arrays: dict[str, np.ndarray]
    rank: int
    alpha: float  # alpha / rank scales what it adds
    lacking: list[str]  # modules without matrices, whose like has some in other layers: zeros in `arrays`


def adapter_layouts(arrays: dict[str, Array], config: Config) -> Iterator[tuple[str, int, str, dict[str, str]]]:
    """Yields path, place in the stack and Hugging Face name of each layer's adapters, and layouts (ours -> theirs).

    Theirs are lora_A [rank, in] and lora_B [out, rank]. Adapters of experts are left out, and those of parameters that
    share a tensor: peft has none.
    """
    for stack, numbers in layers.stacks.items():
        names = [name for parameter, name, _ in hf_layer_tensors() if f"{stack}.{parameter}" in arrays]
        for parameter, name, layout in hf_layer_tensors():
            path = f"{stack}.{parameter.removesuffix('kernel')}adapter"
            is_module = name.endswith(".weight") and name.count("{}") == names.count(name) == 1
            if f"{path}.down" not in arrays or not is_module:
                continue
            axes, sides = layout.split(" -> ")
            split = arrays[f"{path}.down"].ndim - 2
            inputs, outputs = axes.split()[:split], axes.split()[split:]
            named = {tuple(re.findall(r"\w+", side)): side for side in re.findall(r"\([^)]*\)|\w+", sides)}
            layouts = {
                f"{path}.down": f"{' '.join(inputs)} rank -> rank {named[*inputs]}",
                f"{path}.up": f"rank {' '.join(outputs)} -> {named[*outputs]} rank",
            }
            for layer, number in enumerate(numbers):
                yield path, layer, name.format(number).removesuffix(".weight"), layouts


def empty_adapters(config: Config, rank: int) -> dict[str, np.ndarray]:
    """Returns zeros for adapters of all linear maps, by their names, and the model's own arrays without values."""
    model = jax.eval_shape(lambda: Decoder(config, nnx.Rngs(0)))
    arrays = {name: x for name, x in named_arrays(model).items() if ".adapter." not in name}
    for path, linear in nnx.iter_modules(model):
        if isinstance(linear, Linear):
            _, kernel, y = linear.equation.replace("->", ",").split(",")
            stack = linear.kernel.ndim - len(kernel)
            name = ".".join(map(str, path))
            split = stack + sum(letter not in y for letter in kernel)
            shape = linear.kernel.shape
            arrays[f"{name}.adapter.down"] = np.zeros((*shape[:split], rank), np.float32)
            arrays[f"{name}.adapter.up"] = np.zeros((*shape[:stack], rank, *shape[split:]), np.float32)
    return arrays


def read_adapter_config(path: Path) -> tuple[int, float]:
    """Returns rank and alpha of adapter_config.json. Raises InputError if it is of more than LoRA's two matrices."""
    settings = read_json(path)
    rank, alpha, starts = settings.get("r"), settings.get("lora_alpha"), settings.get("init_lora_weights")
    problems = [
        f"{name} is {json.dumps(value)}: {FOREIGN.get(name, 'what that adds is not known here')}"
        for name, value in settings.items()
        if name not in KNOWN and value and value != "none"
    ]
    if settings.get("peft_type") != "LORA":
        problems.append(f"peft_type is {json.dumps(settings.get('peft_type'))}, not LORA")
    if type(rank) is not int or not 1 <= rank < 2**16:
        problems.append(f"r is {json.dumps(rank)}, not an integer from 1 to {2**16 - 1:,}")
    if type(alpha) not in (int, float) or not 1e-30 <= alpha <= 1e30:
        problems.append(f"lora_alpha is {json.dumps(alpha)[:40]}, not a number from 1e-30 to 1e30")
    if type(settings.get("use_rslora", False)) is not bool:
        problems.append(f"use_rslora is {json.dumps(settings['use_rslora'])}, neither true nor false")
    if isinstance(starts, str) and starts not in ("gaussian", "orthogonal", "eva"):
        problems.append(f"init_lora_weights is {json.dumps(starts)}: it goes with other weights than the base's")
    if problems:
        raise InputError("\n".join(f"{path}: {problem}: give a plain LoRA adapter" for problem in problems))
    return rank, alpha * rank**0.5 if settings.get("use_rslora") else alpha


def read_adapter_tensors(path: Path, rank: int) -> dict[str, np.ndarray]:
    """Returns the tensors of adapter_model.safetensors, by name. Raises InputError if some are of another rank."""
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError, KeyError, AttributeError) as error:  # the last two: a dtype that NumPy lacks
        raise InputError(
            f"{path}: cannot be read as safetensors: {error}: write it again, by save_pretrained"
        ) from None
    ranks = {x.shape[0] for name, x in tensors.items() if name.endswith(".lora_A.weight") and x.ndim}
    if ranks != {rank}:
        there = ", ".join(map(str, sorted(ranks))) or "none"
        raise InputError(f"{path}: rows of its lora_A: {there}, but r of adapter_config.json is {rank}: train it again")
    return tensors


def read_adapter(directory: str, config: Config) -> PeftAdapter:
    """Reads a directory of peft. Raises InputError with all tensors that are wrong, or of nothing in the model."""
    settings, path = (Path(directory) / name for name in ("adapter_config.json", "adapter_model.safetensors"))
    for file in settings, path:
        if not file.is_file():  # a pipe would be waited for
            raise InputError(f"{file}: is no file: give a directory that save_pretrained of peft wrote, in safetensors")
    rank, alpha = read_adapter_config(settings)
    tensors = read_adapter_tensors(path, rank)
    arrays = empty_adapters(config, rank)
    filled = set()
    lacking = []
    problems = []
    for adapter, layer, module, layouts in adapter_layouts(arrays, config):
        names = [f"base_model.model.{module}.lora_{side}.weight" for side in "AB"]
        if tensors.keys().isdisjoint(names):
            lacking.append((adapter, module))
            continue
        filled.add(adapter)
        for name, (side, layout) in zip(names, layouts.items(), strict=True):
            tensor = tensors.pop(name, None)
            slot = arrays[side][layer]
            shape = rearrange(slot, layout).shape
            ours, theirs = layout.split(" -> ")
            if tensor is None or tensor.shape != shape or tensor.dtype not in FLOATS:
                there = "missing" if tensor is None else f"{tensor.dtype} {[*tensor.shape]}"
                problems.append(f"{name} is {there}, not float32, bfloat16 or float16 {[*shape]}")
            elif not np.isfinite(tensor).all() or np.abs(tensor).max(initial=0) > 1e30 / max(alpha / rank, 1):
                problems.append(f"{name} has numbers that are not finite, or beyond 1e30 where they are scaled")
            else:
                slot[...] = rearrange(tensor, f"{theirs} -> {ours}", **dict(zip(ours.split(), slot.shape, strict=True)))
    problems += [f"{name[:200]!r} is of nothing in this model that has a tensor of its own" for name in sorted(tensors)]
    if problems:
        left = [f"and {len(problems) - 10:,} more"] if len(problems) > 10 else []
        raise InputError("\n  ".join([f"{path}: its tensors are no adapter of this model:", *problems[:10], *left]))
    arrays = {name: x for name, x in arrays.items() if name.rpartition(".")[0] in filled}
    return PeftAdapter(arrays, rank, alpha, [module for adapter, module in lacking if adapter in filled])
