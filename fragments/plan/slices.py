"""Slices of TPUs that a plan is for."""

import itertools
import math
import re

from generator.language.roles import CHIPS, HARDWARE, InputError

DEFAULT_MACHINE = "v5p:8x8x4"


def machine(hardware: str, devices: int) -> tuple[str, float, list[tuple[int, ...]], list[str]]:
    """Returns the chip of a slice, the bytes of one, the places of all, and the flags of compile that say so."""
    if hardware in HARDWARE:
        hardware = HARDWARE[hardware].topology
    chip, _, shape = hardware.partition(":")
    sides = [int(x) for x in shape.split("x")] if re.fullmatch(r"[1-9]\d{0,3}(x[1-9]\d{0,3})+", shape) else [0]
    flat = chip in ("v5e", "v6e")
    each = 2 if chip == "tpu7x" else 1  # devices of a chip
    exists = chip in CHIPS and len(sides) == (2 if flat else 3) and not (flat and max(sides) > 16)
    if not exists or devices not in (0, each * math.prod(sides)):
        choices = f"{', '.join([*HARDWARE, *CHIPS])} with its lengths, such as {DEFAULT_MACHINE}, no --devices"
        raise InputError(f"--hardware {hardware} --devices {devices}: there is no such slice: give {choices}")
    coordinates = itertools.product(*map(range, [*sides, 1][:3]), range(each))
    return chip, CHIPS[chip].usable_gib * 2**30, [(0, x, y, z) for x, y, z, _ in coordinates], ["--topology", hardware]
