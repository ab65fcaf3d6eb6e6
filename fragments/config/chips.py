"""Kinds of devices, and their numbers."""

from typing import NamedTuple

from generator.language import point


class Chip(NamedTuple):
    """A kind of device."""

    kinds: tuple[str, ...]  # JAX's names for it
    peak: float  # dense bf16 FLOP/s
    point("Chip.fields")
