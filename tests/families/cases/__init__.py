"""For each family: the configurations of transformers that its woven packages are compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """One random checkpoint of a family.

    Attributes:
        settings: of transformers' configuration, on top of the family's own.
        follows: in rope_parameters: what an export writes out, and the reference lets follow from other settings.
        atol: how far logits may be off; more than 1e-4 only where the reference computes a step in lower precision.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    follows: dict[str, Any] = field(default_factory=dict)
    atol: float = 1e-4


@dataclass(frozen=True)
class Family:
    """An architecture of ours, its model and configuration in transformers, and the cases.

    Attributes:
        settings: of transformers' configuration, in every case.
        published: preset -> parameters in billions as its authors give them, and where they say so.
        length: of the compared sequences: longer than windows, chunks and original contexts.
    """

    architecture: str
    model: str
    config: str
    settings: dict[str, Any]
    cases: dict[str, Case]
    published: dict[str, tuple[float, str]]
    length: int = 32


# a small model of any family; initial weights are large, so that every part of it moves the logits
SMALL = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    initializer_range=0.2,
)
