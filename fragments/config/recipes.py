"""Recipes: settings of a preset on some hardware, and flags of the compiler."""

from typing import NamedTuple

from generator.language import requires

requires("train/hardware")


class Hardware(NamedTuple):
    """Devices that a job is meant for."""

    devices: int
    topology: str  # of CHIPS, with the shape of a slice
    flags: str = ""  # for the compiler, in place of FLAGS in train.py


class Recipe(NamedTuple):
    """What a preset takes on some hardware."""

    settings: dict[str, object]  # in place of those of the preset
    flags: str = ""  # for the compiler, besides
