"""The model of transformers for a folder, and the folder as a package is to load it: both in fp32."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from generator.checkpoint.comparisons import vary
from generator.errors import LoomError, short


def count_parameters(folder: Path, shown: str) -> int:
    """Counts the parameters of the model that transformers makes of a config.json; none is allocated."""
    with _by_transformers(shown), torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    return sum(parameter.numel() for parameter in model.parameters())


def load_reference(folder: Path, shown: str, weights: list[Path], hf: dict[str, Any], scratch: Path) -> Any:
    """Returns the model, of random weights where a folder has none; what a package is to load goes to a new folder.

    Args:
        weights: the files with its weights.
        hf: the settings of its config.json.
        scratch: the new folder.
    """
    scratch.mkdir()
    how: dict[str, Any] = {"attn_implementation": "eager", "dtype": torch.float32}
    from_pretrained: Any = AutoModelForCausalLM.from_pretrained  # whose type knows no loading info
    found: dict[str, Any] = {"missing_keys": (), "mismatched_keys": ()}
    with _by_transformers(shown):
        if weights:
            model, found = from_pretrained(folder, output_loading_info=True, ignore_mismatched_sizes=True, **how)
        else:
            config = AutoConfig.from_pretrained(folder)
            # large enough that every part of a small model moves the logits
            config.initializer_range = max(getattr(config, "initializer_range", 0), config.hidden_size**-0.5)
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(config, **how)
            vary(model)
            model.save_pretrained(scratch)
    for name, *shapes in sorted(found["mismatched_keys"]):
        theirs, ours = map(list, shapes)
        message = f"transformers cannot load it: {name} has the shape {theirs}, and config.json asks for {ours}"
        raise LoomError(message, shown, "Give the config.json that belongs to these tensors.")
    if missing := sorted(found["missing_keys"]):
        message = f"its files lack {short(', '.join(missing), 500)}, which transformers would make up"
        raise LoomError(message, shown, "Give a whole checkpoint, or its config.json alone for random weights.")
    for file in (*weights, *folder.glob("*.safetensors.index.json")):
        (scratch / file.name).symlink_to(file.resolve())
    (scratch / "config.json").write_text(json.dumps(hf | {"dtype": "float32"}))
    model.set_experts_implementation("eager")  # the grouped products of PyTorch take no odd sizes
    return model.eval()


@contextmanager
def _by_transformers(shown: str) -> Iterator[None]:
    """Has transformers say nothing but errors, and makes these errors with a place."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except Exception as error:  # of any class, as the settings are anybody's
        remedy = "Give a folder that AutoModelForCausalLM.from_pretrained loads, without code of its own."
        reason = short(f"{type(error).__name__}: {error}", 500)
        raise LoomError(f"transformers cannot load it: {reason}", shown, remedy) from None
