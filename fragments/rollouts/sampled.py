"""Completions that the model being trained sampled."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from generator.language import point
from generator.language.roles import InputError


@dataclasses.dataclass
class Sampled:
    """A prompt and its completion."""

    prompt: list[int]
    tokens: list[int]
    logprobs: list[float]  # of the tokens, by the engine
    advantages: list[float]  # of the tokens; empty where no reward gives any
    point("Sampled.fields")


def check_lengths(saved: Iterable[dict[str, Any]], longest: int) -> None:
    """Raises InputError for a completion of a checkpoint that with its prompt does not fit a sequence."""
    most = max((len(one["prompt"]) + len(one["tokens"]) - 1 for one in saved), default=0)  # the last token is a target
    if most > longest:
        raise InputError(f"--sequence-length {longest}: the checkpoint has a rollout of {most} tokens: give as many")
