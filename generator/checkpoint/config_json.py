"""A checkpoint's config.json, read without trusting it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from generator.checkpoint.kinds import MOST_LAYERS
from generator.errors import LoomError, short
from generator.recipe.files import read_text
from generator.recipe.tomltext import is_deep

REMEDY = "Give the config.json of a checkpoint."


def read_config(path: Path, shown: str) -> dict[str, Any]:
    """Its settings.

    Args:
        shown: the path, for errors.
    """
    try:
        hf = json.loads(read_text(path, shown))
        json.dumps(hf, ensure_ascii=False).encode()  # half a character is none
    except (ValueError, RecursionError) as error:
        raise LoomError(f"cannot be read: {error}", shown, REMEDY) from None
    if is_deep(hf):
        raise LoomError("is nested too deeply", shown, REMEDY)
    if not isinstance(hf, dict) or not isinstance(hf.get("model_type"), str):
        raise LoomError("has no model_type", shown, REMEDY)
    for name in "num_hidden_layers", "n_layer":
        if (layers := hf.get(name)) is not None and not (type(layers) is int and 0 < layers <= MOST_LAYERS):
            remedy = f"Give a number from 1 to {MOST_LAYERS:,}."
            raise LoomError(f"{name} is {short(json.dumps(layers))}", shown, remedy)
    return hf
