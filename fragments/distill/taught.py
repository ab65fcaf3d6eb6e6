"""Prepared documents with the likeliest tokens of a teacher at each place."""

import numpy as np

from generator.language import proceed, requires, splice
from generator.language.roles import Config, InputError, read_description, split_mixture

requires("data/chat_data")


def taught_type(token: str, top_k: int) -> np.dtype:
    """Returns the type of an array [n]: tokens, and before each the likeliest ones, with log-probabilities (nats)."""
    return np.dtype([("token", token), ("weight", "<f2"), ("top", token, (top_k,)), ("logprob", "<f4", (top_k,))])


def taught_top_k(config: Config) -> int:
    """Returns how many tokens of a teacher the data has at each place.

    Raises InputError if it has none, or of another temperature than --distill-temperature.
    """
    data = [path for x in (config.data, config.eval_data) if x for _, path in split_mixture(x)]
    counts = dict[int, str]()
    for path in data:
        description = read_description(path) or {}
        if "top_k" not in description:
            command = f"python -m {__package__}.teacher_logits --checkpoint-dir TEACHER --data PREPARED --out OUT"
            raise InputError(
                f"data {path}: has no log-probabilities of a teacher, which --objective distill needs: "
                f"write them by `{command}`, and give --data OUT"
            )
        if (temperature := description["temperature"]) != config.distill_temperature:
            raise InputError(
                f"--distill-temperature {config.distill_temperature}: data {path} is of the temperature {temperature}: "
                "give that one, or write the data anew"
            )
        counts[description["top_k"]] = path
    if len(counts) > 1:
        raise InputError(f"data {' and '.join(counts.values())}: differ in their --top-k: write them with the same one")
    return next(iter(counts))


@splice("open_prepared.start")
def _(data):
    top_k = (read_description(data) or {}).get("top_k")


@splice("open_prepared.tokens", after="chat_data")
def _(record, dtype, top_k, tokens):
    if top_k:
        tokens = np.frombuffer(record, taught_type(dtype, top_k)).astype(taught_type("<i4", top_k))
    else:
        proceed()
