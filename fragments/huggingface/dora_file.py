"""DoRA adapters as `save_pretrained` of peft writes them, with `use_dora`.

Source: Liu et al. 2024, arXiv 2402.09353, section 4.1; peft's documentation, "PEFT checkpoint format".
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from generator.language import requires, splice
from generator.language.roles import Config, Decoder, InputError, LinearMap, hf_views, linear_maps, named_arrays, norms

requires("dora", "huggingface/adapter_file")


def frozen_norms(linear: LinearMap, kernel: Any) -> np.ndarray:
    """Returns the norms [layers..., outputs...] of a kernel that may be read now."""
    inputs = tuple(range(-len(linear.inputs + linear.outputs), -len(linear.outputs)))
    return np.array(norms(np.asarray(kernel), inputs))


def norm_views(norms: dict[str, np.ndarray], maps: dict[str, LinearMap], config: Config) -> dict[str, np.ndarray]:
    """Returns views of norms, by path of the map, by the tensor whose outputs they are of."""
    shapes = {path: (*maps[path].stack, *[1] * len(maps[path].inputs), *maps[path].outputs) for path in norms}
    return hf_views({f"{path}.kernel": x.reshape(shapes[path]) for path, x in norms.items()}, config)


def add_norms(
    tensors: dict[str, np.ndarray],
    arrays: dict[str, Any],
    maps: dict[str, LinearMap],
    shared: Iterable[str],
    config: Config,
) -> None:
    """Adds the norms of maps to the tensors of an adapter. Raises InputError for experts."""
    trained = {}
    for path in shared:
        if maps[path].experts:
            raise InputError(f"{path}: peft has no DoRA with adapters of experts: leave them out by --lora-targets")
        trained[path] = frozen_norms(maps[path], arrays[f"{path}.kernel"])
        trained[path] += arrays.get(f"{path}.adapter.magnitude", 0)
    for tensor, view in norm_views(trained, maps, config).items():
        module = tensor.removesuffix(".weight")
        tensors[f"base_model.model.{module}.lora_magnitude_vector"] = np.asarray(view).astype(np.float32).ravel()


@splice("save_adapters.tensors")
def _(tensors, arrays, maps, shared, config):
    add_norms(tensors, arrays, maps, shared, config)


@splice("save_adapters.settings")
def _(settings):
    settings["use_dora"] = True


@splice("read_adapter_config.known")
def _(settings, known, problems):
    known = known | {"use_dora"}
    if settings.get("use_dora") is not True:
        problems.append("use_dora is not true, and this package trains DoRA")


@splice("fill_adapter.views")
def _(arrays, paths, maps, config):
    norms_read = {path: np.zeros((*maps[path].stack, *maps[path].outputs), np.float32) for path in paths}
    arrays |= {f"{path}.adapter.magnitude": x for path, x in norms_read.items()}
    views_of_norms = norm_views(norms_read, maps, config)


def read_norm(module: str, tensors: dict[str, np.ndarray], views: dict[str, np.ndarray]) -> list[str]:
    """Moves the norms of a module's outputs into their view; returns what is wrong with them."""
    key = f"base_model.model.{module}.lora_magnitude_vector"
    norm = tensors.pop(key, None)
    view = views[f"{module}.weight"]
    if norm is None or norm.size != view.size or not np.isfinite(norm).all():
        return [f"{key} is not there with {view.size} finite numbers"]
    view[...] = norm.reshape(view.shape)
    return []


@splice("fill_adapter.module")
def _(name, tensors, problems, views_of_norms):
    problems += read_norm(name, tensors, views_of_norms)


def less_frozen(arrays: dict[str, np.ndarray], model: Decoder, config: Config) -> None:
    """Leaves the difference of norms that were read to those of the kernels."""
    kernels = named_arrays(model)
    maps = linear_maps(config)
    for name in [name for name in arrays if name.endswith(".magnitude")]:
        path = name.removesuffix(".adapter.magnitude")
        arrays[name] -= frozen_norms(maps[path], kernels[f"{path}.kernel"])


@splice("with_peft_adapter.read")
def _(arrays, model, config):
    less_frozen(arrays, model, config)
