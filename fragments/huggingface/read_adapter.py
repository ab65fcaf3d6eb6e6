"""LoRA adapters alone, as `save_pretrained` of peft writes them: their tensors, and how they are read.

Source: Hu et al. 2021, arXiv 2106.09685, section 4.1; Kalajdzievski 2023, arXiv 2312.03732, section 3.2 (rsLoRA);
peft's documentation, "PEFT checkpoint format".
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx
from safetensors import SafetensorError
from safetensors.numpy import load_file

from generator.language import point, requires
from generator.language.roles import Config, Decoder, InputError, hf_views, read_json

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
    "target_parameters": "its experts are one tensor",
    "rank_pattern": "its projections differ in rank, and do not have one scale",
    "alpha_pattern": "its projections differ in scale",
}


FLOATS = {np.dtype(kind) for kind in ("float32", "bfloat16", "float16")}


class PeftAdapter(NamedTuple):
    """An adapter of peft; `arrays` are its matrices by the names that they have in a model with LoRA, stacked."""

    arrays: dict[str, np.ndarray]
    rank: int
    alpha: float  # alpha / rank scales what it adds
    lacking: list[str]  # modules without matrices, whose like has some in other layers: zeros in `arrays`


class LinearMap(NamedTuple):
    """Shapes of a linear map's kernel: [layers and experts..., inputs..., outputs...]."""

    stack: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    experts: bool

    @property
    def rank_axis(self) -> int:
        """Returns the axis of the rank in `up`."""
        return len(self.stack) - self.experts

    def empty(self, side: str, rank: int) -> np.ndarray:
        """Returns zeros for a matrix of an adapter."""
        up = *self.stack[: self.rank_axis], rank, *self.stack[self.rank_axis :], *self.outputs
        return np.zeros((*self.stack, *self.inputs, rank) if side == "down" else up, np.float32)

    def as_kernel(self, x: np.ndarray, side: str) -> np.ndarray:
        """Returns a view of a matrix of an adapter as a kernel in which the rank stands for the inputs or outputs."""
        if side == "down":
            return x.reshape(*x.shape, *[1] * len(self.outputs[1:]))
        x = np.moveaxis(x, self.rank_axis, len(self.stack))
        return x.reshape(*x.shape[: len(self.stack) + 1], *[1] * len(self.inputs[1:]), *self.outputs)


class PeftModule(NamedTuple):
    """A module of the Hugging Face model: the linear maps that share its weight, and whether that is [in, out]."""

    paths: list[str]
    is_transposed: bool

    def matrix(self, view: np.ndarray) -> np.ndarray:
        """Returns a matrix of a map in the layout of torch.nn.Linear: lora_A [rank, in] or lora_B [out, rank]."""
        matrix = np.asarray(view)
        return matrix.T if self.is_transposed else matrix.reshape(-1, matrix.shape[-1])


def linear_maps(config: Config) -> dict[str, LinearMap]:
    """Returns the linear maps that can have adapters of peft, by path: neither routers nor blocks on a diagonal."""
    maps = {}
    for path, linear in nnx.iter_modules(jax.eval_shape(lambda: Decoder(config, nnx.Rngs(0)))):
        if hasattr(linear, "equation") and path[-1] != "router":
            x, kernel, y = linear.equation.replace("->", ",").split(",")
            inputs, outputs = (sum(letter in side for letter in kernel) for side in (x, y))
            if inputs + outputs <= len(kernel):
                shape = linear.kernel.shape
                sides = shape[: -inputs - outputs], shape[-inputs - outputs : -outputs], shape[-outputs:]
                maps[".".join(map(str, path))] = LinearMap(*sides, inputs + outputs < len(kernel))
    return maps


def peft_modules(maps: dict[str, LinearMap], config: Config) -> dict[str, PeftModule]:
    """Returns the modules of the Hugging Face model that have these maps, by name.

    Left out are experts that are together in one tensor.
    """
    modules: dict[str, PeftModule] = {}
    for path, linear in maps.items():
        empty = linear.as_kernel(linear.empty("down", 0), "down")
        for tensor, view in hf_views({f"{path}.kernel": empty}, config).items():
            if not (linear.experts and view.ndim > 2):
                module = modules.setdefault(tensor.removesuffix(".weight"), PeftModule([], view.shape[0] != 0))
                module.paths.append(path)
    return modules


def views_of(
    arrays: dict[str, np.ndarray], maps: dict[str, LinearMap], paths: Iterable[str], side: str, config: Config
) -> dict[str, np.ndarray]:
    """Returns views of matrices of adapters, by the tensor whose kernel they are beside."""
    kernels = {f"{path}.kernel": maps[path].as_kernel(arrays[f"{path}.adapter.{side}"], side) for path in paths}
    return hf_views(kernels, config)


def has_one_scale(settings: dict[str, Any]) -> bool:
    """Says whether modules of another rank, such as those of several maps, have the alpha that keeps the scale."""
    ranks, alphas = (settings.get(f"{name}_pattern") or {} for name in ("rank", "alpha"))
    try:
        scaled = {name: alpha * settings["r"] for name, alpha in alphas.items()}
        return not settings.get("use_rslora") and scaled == {n: r * settings["lora_alpha"] for n, r in ranks.items()}
    except (AttributeError, KeyError, TypeError):
        return False


def read_adapter_config(path: Path) -> tuple[int, float]:
    """Returns rank and alpha of adapter_config.json. Raises InputError if it is of more than LoRA's two matrices."""
    settings = read_json(path)
    rank, alpha, starts = settings.get("r"), settings.get("lora_alpha"), settings.get("init_lora_weights")
    known = KNOWN
    problems = []
    if has_one_scale(settings):
        known = known | {"rank_pattern", "alpha_pattern"}
    point("read_adapter_config.known", settings, known, problems)
    problems += [
        f"{name} is {json.dumps(value)}: {FOREIGN.get(name, 'what that adds is not known here')}"
        for name, value in settings.items()
        if name not in known and value and value != "none"
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
    if not ranks or any(rows % rank for rows in ranks):
        there = ", ".join(map(str, sorted(ranks))) or "none"
        raise InputError(f"{path}: rows of its lora_A: {there}, but r of adapter_config.json is {rank}: train it again")
    point("read_adapter_tensors.names", tensors)
    return tensors


def fill_adapter(
    arrays: dict[str, np.ndarray],
    tensors: dict[str, np.ndarray],
    modules: dict[str, PeftModule],
    maps: dict[str, LinearMap],
    config: Config,
    limit: float,
) -> tuple[list[str], list[str]]:
    """Moves tensors of peft into empty matrices; returns the modules that have none, and what is wrong with others."""
    paths = {path for module in modules.values() for path in module.paths}
    downs = {path: views_of(arrays, maps, [path], "down", config) for path in paths}
    ups = views_of(arrays, maps, paths, "up", config)
    lacking, problems = [], []
    point("fill_adapter.views", arrays, paths, maps, config)
    for name, module in modules.items():
        views = {"A": [downs[path][f"{name}.weight"] for path in module.paths], "B": [ups[f"{name}.weight"]]}
        keys = {side: f"base_model.model.{name}.lora_{side}.weight" for side in "AB"}
        if tensors.keys().isdisjoint(keys.values()):
            lacking.append(name)
            continue
        for side, key in keys.items():
            tensor = tensors.pop(key, None)
            shape = module.matrix(views[side][0]).shape
            if tensor is None or tensor.shape != shape or tensor.dtype not in FLOATS:
                there = "missing" if tensor is None else f"{tensor.dtype} {[*tensor.shape]}"
                problems.append(f"{key} is {there}, not float32, bfloat16 or float16 {[*shape]}")
            elif not np.isfinite(tensor).all() or np.abs(tensor).max(initial=0) > limit:
                problems.append(f"{key} has numbers that are not finite, or beyond 1e30 where they are scaled")
            else:
                for view in views[side]:
                    view[...] = (tensor.T if module.is_transposed else tensor).reshape(view.shape)
        point("fill_adapter.module", name, tensors, problems)
    return lacking, problems


def take_apart(arrays: dict[str, np.ndarray], maps: dict[str, LinearMap], paths: Sequence[str], rank: int) -> bool:
    """Leaves each map of a module its own matrices, of this rank; says whether there are such.

    Either all maps share the module's lora_A, or each has ranks of its own, where lora_B of the others is zero. A map
    to which nothing is added has no adapter, if others have.
    """
    used = [path for path in paths if arrays[f"{path}.adapter.up"].any()] or [*paths]
    for number, path in enumerate(used):
        down, up = (f"{path}.adapter.{side}" for side in ("down", "up"))
        axis = maps[path].rank_axis
        if arrays[down].shape[-1] == rank * len(used):
            ranks = np.arange(rank) + rank * number
            if np.delete(arrays[up], ranks, axis).any():
                return False
            arrays[down] = arrays[down][..., ranks]
            arrays[up] = arrays[up].take(ranks, axis)
    for path in {*paths} - {*used}:
        for name in [name for name in arrays if name.startswith(f"{path}.adapter.")]:
            del arrays[name]
    return all(arrays[f"{path}.adapter.down"].shape[-1] == rank for path in used)


def read_adapter(directory: str, config: Config) -> PeftAdapter:
    """Reads a directory of peft. Raises InputError with all tensors that are wrong, or of nothing in the model."""
    settings, path = (Path(directory) / name for name in ("adapter_config.json", "adapter_model.safetensors"))
    for file in settings, path:
        if not file.is_file():  # a pipe would be waited for
            raise InputError(f"{file}: is no file: give a directory that save_pretrained of peft wrote, in safetensors")
    rank, alpha = read_adapter_config(settings)
    tensors = read_adapter_tensors(path, rank)
    maps = linear_maps(config)
    modules = peft_modules(maps, config)
    ranks = {}  # of the maps: that of their module, until they are taken apart
    for name, module in modules.items():
        sides = [tensors.get(f"base_model.model.{name}.lora_{side}.weight") for side in "AB"]
        if any(x is not None for x in sides):
            ranks |= dict.fromkeys(module.paths, rank if sides[0] is None else len(sides[0]))
    modules = {name: module for name, module in modules.items() if module.paths[0] in ranks}
    sides = [(path, side) for path in ranks for side in ("down", "up")]
    arrays = {f"{path}.adapter.{side}": maps[path].empty(side, ranks[path]) for path, side in sides}
    lacking, problems = fill_adapter(arrays, tensors, modules, maps, config, 1e30 / max(alpha / rank, 1))
    for paths in {tuple(module.paths) for module in modules.values()}:
        if not take_apart(arrays, maps, paths, rank):
            problems.append(f"{', '.join(paths)}: their rank is {ranks[paths[0]]}, not {rank} for each by itself")
    problems += [f"{name[:200]!r} is of nothing in this model that has a tensor of its own" for name in sorted(tensors)]
    if problems:
        left = [f"and {len(problems) - 10:,} more"] if len(problems) > 10 else []
        raise InputError("\n  ".join([f"{path}: its tensors are no adapter of this model:", *problems[:10], *left]))
    return PeftAdapter(arrays, rank, alpha, lacking)
