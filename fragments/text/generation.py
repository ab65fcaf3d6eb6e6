"""Defaults of sampling and stop tokens, from a checkpoint's generation_config.json or config.json."""

import json
import operator
from typing import Any

import numpy as np
from etils import epath

from generator.language.roles import InputError

SAMPLING_BOUNDS = {
    "temperature": (0, 2),
    "top_p": (1e-6, 1),
    "min_p": (0, 1),
    "top_k": (0, 2**31 - 1),
    "repetition_penalty": (0.01, 100),
}


def load_generation(tokenizer: str) -> dict[str, Any]:
    """Reads generation_config.json beside a tokenizer.json, or config.json where it is missing, as transformers does.

    Returns "eos_token_id", the set of tokens that end a text, and where they are set "do_sample" and the names of
    SAMPLING_BOUNDS. Raises InputError for an invalid value.
    """
    files = [epath.Path(tokenizer).with_name(name) for name in ("generation_config.json", "config.json")]
    file = next((file for file in files if tokenizer != "bytes" and file.exists()), None)
    if file is None:
        return {"eos_token_id": set()}
    try:
        settings = {name: value for name, value in json.loads(file.read_text()).items() if value is not None}
        ends = {*map(operator.index, np.ravel(settings.get("eos_token_id", [])))} - {-1}  # some write -1 for none
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{file}: eos_token_id must be a token or several: {error}: fix or remove it") from None
    if settings.get("top_k") == -1:
        settings["top_k"] = 0  # another way to write all tokens
    for name, (least, most) in SAMPLING_BOUNDS.items():
        number = settings.get(name, least)
        kinds = (int,) if name == "top_k" else (int, float)
        if type(number) not in kinds or not least <= number <= most:
            raise InputError(f"{file}: {name} is {number!r}: must be a number from {least} to {most:,}: fix it")
    sampling = {name: settings[name] for name in ("do_sample", *SAMPLING_BOUNDS) if name in settings}
    return sampling | {"eos_token_id": ends}


def default_sampling(settings: dict[str, Any], sampled: bool) -> dict[str, float]:
    """Returns the sampling settings for what `load_generation` found.

    Args:
        sampled: "do_sample" where it is absent: true in vLLM's server, false in transformers.
    """
    sampling = {"temperature": 1.0} | {name: settings[name] for name in SAMPLING_BOUNDS if name in settings}
    if settings.get("do_sample", sampled):
        return sampling
    return {"temperature": 0.0} | {name: x for name, x in sampling.items() if name == "repetition_penalty"}
