"""Hugging Face checkpoints: config.json and safetensors."""

import json
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange
from flax import nnx
from huggingface_hub import split_state_dict_into_shards_factory
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from generator.language import layers, point, setting
from generator.language.roles import (
    ByteTokenizer,
    Config,
    Decoder,
    InputError,
    LazyArray,
    check_config,
    copy_tokenizer,
    load_tokenizer,
    named_arrays,
)


class CheckpointConfig:
    # default dtype of exported tensors; an imported model has its own
    export_dtype: Literal["float32", "bfloat16", "float16"] = "float32"


def hf_tensors() -> Iterator[tuple[str, str, str]]:
    """Yields path, Hugging Face name and layout (ours -> theirs) of each parameter outside the layers."""
    point("hf.tensors")


def hf_layer_tensors() -> Iterator[tuple[str, str, str]]:
    """Yields the same for a layer's parameters, by path in it; the first {} in a name is the layer's number."""
    point("hf.layer_tensors")


def hf_buffers() -> Iterator[str]:
    """Yields suffixes of tensors that are not parameters and can be skipped: config.json implies them."""
    point("hf.buffers")


def hf_sizes() -> Iterator[tuple[str, str]]:
    """Yields the settings of config.json that loading a model reads, and their fields in Config."""
    point("hf.sizes")


def hf_structure(config: Config) -> Iterator[tuple[str, Any, str]]:
    """Yields settings of config.json that this package reads with one value, that value, and what reads others."""
    yield "model_type", setting("model_type"), "the architecture of that model_type"
    yield "quantization_config", None, "quantized weights (huggingface/fp8_blocks or huggingface/mxfp4)"
    point("hf.structure", config)


def complete(hf: dict[str, Any]) -> dict[str, Any]:
    """Returns config.json with the defaults of transformers for settings that are missing; null is none of them."""
    if setting("ignored"):
        # accepted, though nothing here covers them
        hf = {name: value for name, value in hf.items() if name not in setting("ignored")}
    point("hf.defaults", hf)
    hf = {setting: value for setting, value in hf.items() if value is not None}
    hf.setdefault("dtype", hf.get("torch_dtype", "float32"))
    point("hf.complete", hf)
    return hf


def layer_values(arrays: dict[str, np.ndarray], parameter: str, config: Config) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the number of each layer that has a parameter, and its values."""
    for stack, numbers in layers.stacks.items():
        yield from zip(numbers, arrays.get(f"{stack}.{parameter}", ()), strict=False)


def hf_views(arrays: dict[str, np.ndarray], config: Config) -> dict[str, np.ndarray]:
    """Returns views of parameters, by Hugging Face name and in its layout; writes go to the parameters."""
    views = {name: rearrange(arrays[path], layout) for path, name, layout in hf_tensors() if path in arrays}
    for parameter, name, layout in hf_layer_tensors():
        for layer, values in (
            enumerate(arrays.get(f"layers.{parameter}", ()))
            if setting("one_stack")
            else layer_values(arrays, parameter, config)
        ):
            with point("hf.layer", name, values):
                with point("hf.tensor", name, layer, values, layout):
                    tensor = name.format(layer)
                    view = rearrange(values, layout)
                with point("hf.view", views, layer, tensor, view, config):
                    views[tensor] = view
    return views


def hf_tensors_of(arrays: dict[str, Any], config: Config) -> tuple[dict[str, np.ndarray], dict[str, Set[str]]]:
    """Returns an array of each tensor's shape, and each parameter's tensors; a checkpoint may join parameters."""
    shaped = {name: np.broadcast_to(np.empty((), x.dtype), x.shape) for name, x in arrays.items()}  # no memory
    return hf_views(shaped, config), {name: hf_views({name: x}, config).keys() for name, x in shaped.items()}


def read_json(path: Path) -> dict[str, Any]:
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise OSError("is not a file")
        settings = json.loads(path.read_bytes())
        if not isinstance(settings, dict):
            raise ValueError("not a JSON object")
        return settings
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: {error}: give a directory that save_pretrained has written") from None


def read_hf_config(hf_dir: Path) -> Config:
    """Reads config.json into a Config. Raises InputError unless its structure is that of this package."""
    path = hf_dir / "config.json"
    hf = read_json(path)
    try:
        if hf.get("num_hidden_layers", 0) > 10_000:  # before lists of that length are made
            raise ValueError(f"num_hidden_layers is {hf['num_hidden_layers']}, more than 10,000")
        hf = complete(hf)
        fields = {field: hf[setting] for setting, field in hf_sizes()}
        fields["dtype"] = {"float16": "bfloat16"}.get(hf["dtype"], hf["dtype"])  # fp16 underflows in gradients
        fields["export_dtype"] = hf["dtype"]
        point("hf.fields", fields)
        config = Config(**fields, tokenizer=str(hf_dir.resolve() / "tokenizer.json"))
        check_config(config, f"{path}: ")
        if problems := [
            f"{path}: {setting} is {json.dumps(hf.get(setting))}, and this package is for {json.dumps(value)}: "
            f"give another checkpoint, or take a package with {feature}"
            for setting, value, feature in hf_structure(config)
            if hf.get(setting) != value
        ]:
            raise InputError("\n".join(problems))
        return config
    except KeyError as setting:
        raise InputError(f"{path}: the setting {setting} is missing: add it") from None
    except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError) as error:
        raise InputError(f"{path}: its settings cannot be read: {error}: fix them") from None


def open_hf(hf_dir: Path) -> dict[str, Any]:
    """Opens the tensors of all safetensors files, by name; each is read when sliced."""
    index, single = hf_dir / "model.safetensors.index.json", hf_dir / "model.safetensors"
    is_single = single.exists() or not index.exists()  # before an index, as in transformers
    shards = {"": single.name} if is_single else read_json(index).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(x, str) and Path(x).name == x for x in shards.values()):
        raise InputError(f"{index}: its weight_map is not one of tensors to the names of files beside it: fix it")
    tensors = {}
    for path in sorted(hf_dir / file for file in set(shards.values())):
        try:
            if path.exists() and not path.is_file():  # a pipe would be waited for
                raise OSError("is not a file")
            opened = safe_open(path, "np", backend="pread")  # what is read from a mapped file stays in memory
            in_file = {name: opened.get_slice(name) for name in opened.keys()}
        except (OSError, SafetensorError) as error:
            raise InputError(f"{path}: cannot be read as safetensors: {error}: fetch it again") from None
        point("hf.found", in_file, path)
        if twice := tensors.keys() & in_file.keys():
            raise InputError(f"{path}: {min(twice)} is in another of the files too: keep one of them")
        tensors |= in_file
    point("hf.opened", tensors, hf_dir)
    return tensors


def open_hf_model(hf_dir: str | Path) -> tuple[Config, Decoder]:
    """Returns Config and model of a Hugging Face directory, with fp32 parameters that are read later.

    Raises InputError with all tensors that are missing, unknown, of another shape, or not fp32, bf16 or fp16.
    """
    config = read_hf_config(Path(hf_dir))
    tensors = open_hf(Path(hf_dir))
    point("load_hf.tensors", config, tensors, hf_dir)
    model = jax.eval_shape(lambda: Decoder(config, nnx.Rngs(0)))
    sizes = sum(x.size for x in jax.tree.leaves(model)), sum(np.prod(x.get_shape()) for x in tensors.values())
    if sizes[0] > 1000 * sizes[1]:  # more than memory may hold
        raise InputError("{}: config.json asks for {:,} numbers, its tensors hold {:,}: fix one".format(hf_dir, *sizes))
    structs = named_arrays(model)
    views, tensors_of = hf_tensors_of(structs, config)
    problems = [f"missing: {name} {list(views[name].shape)}" for name in sorted(views.keys() - tensors.keys())]
    for name, tensor in sorted(tensors.items()):
        dtype, shape = tensor.get_dtype(), tensor.get_shape()
        if name in views and (dtype not in ("F32", "BF16", "F16") or shape != list(views[name].shape)):
            problems.append(f"wrong: {name} {dtype} {shape}, not F32, BF16 or F16 {list(views[name].shape)}")
        elif name not in views and not name.endswith(tuple(hf_buffers())):
            problems.append(f"unknown: {name} {dtype} {shape}")
    if problems:
        raise InputError("\n  ".join([f"{hf_dir}: its tensors are not those of its config.json:", *problems]))

    def read(parameter: str) -> np.ndarray:
        together = {parameter} | {name for name in tensors_of if tensors_of[name] & tensors_of[parameter]}
        arrays = {name: np.full(structs[name].shape, np.nan, structs[name].dtype) for name in together}
        for name, view in hf_views(arrays, config).items():
            tensor = tensors[name][...]
            if not np.isfinite(tensor).all():
                raise InputError(f"{hf_dir}: {name} has numbers that are not finite: use an earlier checkpoint")
            view[...] = tensor
        if np.isnan(arrays[parameter]).any():  # a layout that reorders axes in parentheses makes a copy, not a view
            raise InputError(f"no tensor of a checkpoint holds all of {parameter}: list it in hf_tensors")
        return arrays[parameter]

    arrays = {name: LazyArray(x, read, name) for name, x in structs.items()}
    point("open_hf_model.arrays", arrays)
    return config, jax.tree.unflatten(jax.tree.structure(model), arrays.values())


def load_hf(hf_dir: str | Path) -> tuple[Config, Decoder]:
    """Returns Config and model of `open_hf_model`, with all parameters loaded."""
    config, model = open_hf_model(hf_dir)
    return config, jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), model)


def spelled_as_in(directory: Path, hf: dict[str, Any]) -> dict[str, Any]:
    """Returns settings as a directory's config.json spells them, with its other settings, such as eos."""
    try:
        config = read_hf_config(directory)
        there = read_json(directory / "config.json")
    except InputError:  # none, or of another kind of model
        return hf | {"eos_token_id": load_tokenizer(str(directory / "tokenizer.json")).eos}
    for name in "_name_or_path", "auto_map":  # a path on another machine, code in another repository
        there.pop(name, None)
    names = [name for name, *_ in (*hf_sizes(), *hf_structure(config))]
    tokens = {name: value for name, value in there.items() if name.endswith("_token_id")}
    other = {name: value for name, value in there.items() if name != "rope_parameters"}  # would override hf's
    spellings = there, other | hf | tokens, hf | tokens
    return next(it for it in spellings if all(complete(it).get(name) == complete(hf).get(name) for name in names))


@np.errstate(over="ignore")  # what overflows is refused
def save_hf(
    config: Config,
    model: Decoder,
    hf_dir: str | Path,
    dtype: str = "float32",
    max_shard_bytes: int = 5 * 10**8,
    tokenizer: str = "",
) -> None:
    """Writes a new directory for `from_pretrained` of transformers, with one shard in memory at a time.

    Args:
        tokenizer: path of a tokenizer.json to write in place of the model's own.
    """
    point("save_hf.model", model)
    directory = Path(hf_dir)
    arrays = named_arrays(model)
    shaped, tensors_of = hf_tensors_of(arrays, config)
    if lacking := [name for name, names in tensors_of.items() if not names and arrays[name].size]:
        raise InputError(f"no tensor of a checkpoint holds {', '.join(lacking)}: list it in hf_tensors")
    directory.mkdir(parents=True)  # overwrites nothing
    split = split_state_dict_into_shards_factory(
        shaped,
        get_storage_size=lambda view: view.size * jnp.dtype(dtype).itemsize,
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=max_shard_bytes,
    )
    views = {}  # of one tensor's parameters at a time, and so of other tensors
    for file, names in split.filename_to_tensors.items():
        tensors = {}
        for name in names:
            if name not in views:
                views.clear()
                views |= hf_views({x: np.asarray(arrays[x]) for x in tensors_of if name in tensors_of[x]}, config)
            with point("hf.saved", tensors, name, views, dtype):
                tensors[name] = np.ascontiguousarray(views[name], dtype)
            if not np.isfinite(tensors[name]).all():
                raise InputError(f"{name} has numbers that are not finite in {dtype}: export it in another --dtype")
        save_file(tensors, directory / file, metadata={"format": "pt"})
    if split.is_sharded:
        index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    hf = {"architectures": [setting("reference")]} | {name: getattr(config, field) for name, field in hf_sizes()}
    hf |= {setting: value for setting, value, _ in hf_structure(config)}
    point("hf.export", hf)
    if (tokenizer or config.tokenizer) == "bytes":
        hf |= {"bos_token_id": ByteTokenizer.bos, "eos_token_id": ByteTokenizer.eos}
    else:
        copy_tokenizer(tokenizer or config.tokenizer, directory, config.tokenizer)
        hf = spelled_as_in(directory, hf)
    hf["torch_dtype" if "torch_dtype" in hf else "dtype"] = dtype
    hf.pop("quantization_config", None)
    (directory / "config.json").write_text(json.dumps(hf, indent=2))
