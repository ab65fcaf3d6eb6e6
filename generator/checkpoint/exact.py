"""A family that reads a checkpoint as it is, without an architecture file for it."""

from __future__ import annotations

from typing import Any

from generator.checkpoint.fit import follow_rules
from generator.errors import LoomError
from generator.recipe.library import Library


def find_exact(
    library: Library, family: str, target: str, hf: dict[str, Any], where: str
) -> tuple[dict[str, object], str] | None:
    """Returns the sizes of a config.json that a family reads as it is, and its preset that has them, or ''.

    Returns None if an architecture file for it would say more than the family does.
    """
    try:
        fitted = follow_rules(library, family, target, hf, f"{family}_as_it_is", where)
    except LoomError:
        return None
    if fitted.problems or fitted.choice.tables().keys() != {"base", "title"}:
        return None
    if fitted.package.find_size_error(fitted.full, hf):
        return None
    sizes, presets = fitted.sizes(), fitted.choice.base.presets
    same = [name for name, fields in presets.items() if sizes.items() <= {n: x for n, (x, _) in fields.items()}.items()]
    return sizes, (same or [""])[-1]
