"""Reads the files in a checkpoint's folder, which may be damaged."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from generator.errors import LoomError, short
from generator.recipe.files import read_text
from generator.recipe.toml import is_deep

INDEX = "model.safetensors.index.json"
MAX_LAYERS = 10_000  # as in packages
MAX_HEADER_BYTES = 10**8  # by the format of safetensors
REMEDY = "Give the config.json of a checkpoint."


def read_config(path: Path, where: str) -> dict[str, Any]:
    """Returns the settings of a config.json.

    Args:
        where: its path, for errors.
    """
    try:
        hf = json.loads(read_text(path, where))
        json.dumps(hf, ensure_ascii=False).encode()  # refuses half a surrogate pair
    except (ValueError, RecursionError) as error:
        raise LoomError(f"cannot be read: {error}", where, REMEDY) from None
    if is_deep(hf):
        raise LoomError("is nested too deeply", where, REMEDY)
    if not isinstance(hf, dict) or hf.get("model_type") is None:
        raise LoomError("has no model_type", where, REMEDY)
    if not isinstance(hf["model_type"], str):
        raise LoomError(f"model_type is {short(json.dumps(hf['model_type']))}, not a name", where, REMEDY)
    for name in "num_hidden_layers", "n_layer":
        if (layers := hf.get(name)) is not None and not (type(layers) is int and 0 < layers <= MAX_LAYERS):
            remedy = f"Give a number from 1 to {MAX_LAYERS:,}."
            raise LoomError(f"{name} is {short(json.dumps(layers))}", where, remedy)
    return hf


def read_tensor_names(folder: Path, where: str) -> set[str]:
    """Returns the names of the tensors in a checkpoint's folder, with {} for numbers; none if it has no tensors."""
    names: set[str] = set()
    index, single = folder / INDEX, folder / "model.safetensors"  # transformers takes a single file before an index
    several = [index] if index.is_file() else sorted(path for path in folder.glob("*.safetensors") if path.is_file())
    for path in [single] if single.is_file() else several:
        try:
            with path.open("rb") as file:
                if path == index:
                    names |= json.load(file)["weight_map"].keys()
                else:
                    size = min(int.from_bytes(file.read(8), "little"), MAX_HEADER_BYTES)
                    names |= json.loads(file.read(size)).keys() - {"__metadata__"}
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            remedy = "Fetch it again, or remove it: then only settings are compared."
            raise LoomError(f"{path.name} beside it cannot be read", where, remedy) from None
    return {re.sub(r"\.\d+(?=\.|$)", ".{}", name) for name in names}
