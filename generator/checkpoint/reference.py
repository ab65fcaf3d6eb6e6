"""Loads the reference of transformers for a folder, and writes the folder that a package loads, both in fp32."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from generator.checkpoint.comparisons import randomize
from generator.errors import LoomError, short


def count_parameters(folder: Path, where: str) -> int:
    """Returns the number of parameters of the reference, by config.json; none is allocated."""
    with _transformers_errors(where), torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    return sum(parameter.numel() for parameter in model.parameters())


def load_reference(folder: Path, where: str, weights: list[Path], hf: dict[str, Any], scratch: Path) -> Any:
    """Returns the reference, with random weights if a folder has none.

    Args:
        where: the folder, for errors.
        weights: the files with its weights.
        hf: the settings of its config.json.
        scratch: a new folder, for the checkpoint that the package loads.
    """
    scratch.mkdir()
    options: dict[str, Any] = {"attn_implementation": "eager", "dtype": torch.float32}
    from_pretrained: Any = AutoModelForCausalLM.from_pretrained  # its type has no loading info
    info: dict[str, Any] = {"missing_keys": (), "mismatched_keys": ()}
    with _transformers_errors(where):
        if weights:
            model, info = from_pretrained(folder, output_loading_info=True, ignore_mismatched_sizes=True, **options)
        else:
            config = AutoConfig.from_pretrained(folder)
            # large enough for every part of a small model to change the logits
            config.initializer_range = max(getattr(config, "initializer_range", 0), config.hidden_size**-0.5)
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(config, **options)
            randomize(model)
            model.save_pretrained(scratch)
    for name, *shapes in sorted(info["mismatched_keys"]):
        actual, expected = map(list, shapes)
        message = f"transformers cannot load it: {name} has the shape {actual}, and config.json asks for {expected}"
        raise LoomError(message, where, "Give the config.json that belongs to these tensors.")
    if missing := sorted(info["missing_keys"]):
        message = f"its files lack {short(', '.join(missing), 500)}, which transformers would initialize at random"
        raise LoomError(message, where, "Give a whole checkpoint, or its config.json alone for random weights.")
    for file in (*weights, *folder.glob("*.safetensors.index.json")):
        (scratch / file.name).symlink_to(file.resolve())
    (scratch / "config.json").write_text(json.dumps(hf | {"dtype": "float32"}))
    model.set_experts_implementation("eager")  # the grouped products of PyTorch do not take odd sizes
    return model.eval()


@contextmanager
def _transformers_errors(where: str) -> Iterator[None]:
    """Silences transformers, and turns its errors into a LoomError."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except Exception as error:  # of any class, as the settings are anybody's
        remedy = "Give a folder that AutoModelForCausalLM.from_pretrained loads, without code of its own."
        reason = short(f"{type(error).__name__}: {error}", 500)
        raise LoomError(f"transformers cannot load it: {reason}", where, remedy) from None
