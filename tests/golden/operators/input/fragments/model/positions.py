"""Positions: each place in the sequence has a number."""

from generator.language import provide, setting, splice

BASE = setting("base")  # of the numbers


@provide("Decoder.__call__", optional=True)
def positions(tokens) -> list[int]:
    order = -1 if setting("reversed") else 1
    return list(range(len(tokens)))[::order]


@splice("Block.scaled")
def _(h, scale, positions):
    shifts = [position * scale for position in positions]
    h = [value + shift * BASE for value, shift in zip(h, shifts)]
