"""Writes values of TOML files as Python source."""

from __future__ import annotations

import math

from generator.errors import LoomError


def literal(value: object, where: str, quote: str = '"') -> str:
    """Returns a value as Python source, long integers with underscores.

    Args:
        where: the place of the value, for the error.
        quote: the quote for strings without special characters.
    """
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, int):
        return f"{value:_}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return _float_literal(value) if math.isfinite(value) else f'float("{value}")'
    if isinstance(value, str):
        plain = value.isprintable() and not {quote, "\\", "{", "}"} & set(value)
        return f"{quote}{value}{quote}" if plain else repr(value)
    if isinstance(value, list):
        return f"[{', '.join(literal(item, where, quote) for item in value)}]"
    if isinstance(value, tuple):
        items = ", ".join(literal(item, where, quote) for item in value)
        return f"({items},)" if len(value) == 1 else f"({items})"
    if isinstance(value, dict):
        pairs = (f"{literal(key, where, quote)}: {literal(item, where, quote)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    raise LoomError(f"{value} is not a Python literal", where, "Give it as a string.")


def _float_literal(value: float) -> str:
    """Returns a float as engineers write it: `275e12`, `1e-5`."""
    for power in (12, 9):
        short = f"{value / 10**power:.12g}e{power}"
        if 10**power <= abs(value) < 10 ** (power + 6) and float(short) == value:
            return short
    return repr(value).replace("e-0", "e-")
