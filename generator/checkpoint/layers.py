"""The pattern of layers that a checkpoint asks for, by the `where` of the kinds of its family."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

from generator.checkpoint.files import MOST_LAYERS
from generator.code.traced import Origin
from generator.errors import LoomError, short
from generator.recipe.expressions import evaluate
from generator.recipe.pattern import Kind, Pattern, find_groups
from generator.recipe.recipe import Recipe


class NoKind(LoomError):
    """Settings of config.json by which a layer is of no kind that a family has."""

    def __init__(self, reason: str, expression: str, hf: dict[str, Any], line: Origin, shown: str):
        self.settings = [name for name in re.findall(r"""hf(?:\[|\.get\()\s*['"](\w+)""", expression) if name in hf]
        values = " and ".join(f"{name} is {short(json.dumps(hf[name]))}" for name in self.settings)
        remedy = f"Fix the settings; or the `where` at {line}, if it is yours."
        super().__init__(f"{values}: {reason}" if values else reason, shown, remedy)


def kinds_by_where(kinds: dict[str, Kind], hf: dict[str, Any], shown: str) -> list[str]:
    """Returns the kind of each layer of a checkpoint, by the `where` of the kinds.

    Args:
        shown: the path of config.json, for errors.
    """
    found = []
    for layer in range(hf["num_hidden_layers"]):
        names = {"hf": hf, "layer": layer}
        of = [name for name, kind in kinds.items() if holds(kind.where, names, kind.lines["where"], shown)]
        if len(of) != 1:
            kind = kinds[of[0] if of else next(iter(kinds))]
            reason = f"layer {layer} is of {' and of '.join(of) or 'no kind'}, by the `where` of each kind"
            raise NoKind(reason, kind.where, hf, kind.lines["where"], shown)
        found += of
    return found


def holds(expression: str, names: dict[str, Any], line: Origin, shown: str) -> bool:
    """Whether a `where` holds; the line is where it stands."""
    try:
        return bool(evaluate(expression, names))
    except Exception as error:  # of any class, as the expression is anybody's
        reason = f"the `where` at {line} cannot be evaluated: {type(error).__name__}: {error}"
        raise NoKind(reason, expression, names["hf"], line, shown) from None


def other_pattern(
    recipe: Recipe, left_out: Collection[str], config: SimpleNamespace, hf: dict[str, Any], shown: str
) -> Pattern | None:
    """Returns the pattern that the `where` of the kinds asks for, where the package is woven for another one.

    Args:
        left_out: fragments that its kinds do not get.
        shown: the path of config.json, for errors.
    """
    kinds = {name: kind for name, kind in recipe.pattern.every.items() if kind.where}
    if not kinds or hf.get("num_hidden_layers") is None:
        return None
    asked = kinds_by_where(kinds, hf, shown)
    if asked == _kinds_woven(recipe.pattern, config) and {*asked} == recipe.pattern.kinds.keys():
        return None
    gone = recipe.pattern.of_kinds - {fragment.name for fragment in recipe.fragments} | set(left_out)
    return Pattern(find_groups(asked), {name: kinds[name].without(gone) for name in kinds if name in asked})


def _kinds_woven(pattern: Pattern, config: SimpleNamespace) -> list[str]:
    """Returns the kind of each layer by a pattern at a checkpoint's sizes; none where these do not fill it."""
    found: dict[int, str] = {}
    stacks = iter(pattern.numbers().values())
    for group in pattern.groups:
        try:
            numbers = [evaluate(next(stacks), {"config": config}) for _ in group.pattern]
        except (TypeError, AttributeError, ArithmeticError):
            return []
        if len(set(map(len, numbers))) > 1 or len(numbers[0]) > MOST_LAYERS:
            return []  # a last period that is not whole, or more layers than there are
        for kind, layers in zip(group.pattern, numbers, strict=True):
            found |= dict.fromkeys(layers, kind)
    return [found[layer] for layer in sorted(found)]


def is_filled(pattern: Pattern, preset: dict[str, object]) -> bool:
    """Whether the layers of a preset fill a pattern: each group has some, and none is left over."""
    config = SimpleNamespace(**preset)
    try:
        counts = [evaluate(group.count, {"config": config}) for group in pattern.groups]
        layers = sum(count * group.period for count, group in zip(counts, pattern.groups, strict=True))
        return min(counts) > 0 and layers == config.layers
    except (AttributeError, TypeError, ArithmeticError):  # a size that a count needs, and that is not there
        return False


def layers_that_fill(pattern: Pattern, preset: dict[str, object]) -> int | None:
    """Returns how many layers a preset needs to fill a pattern: as many as it has, or the next number that will do."""
    first = preset.get("layers")
    numbers = range(first, first + 500) if isinstance(first, int) else ()
    return next((n for n in numbers if is_filled(pattern, {**preset, "layers": n})), None)


def pattern_tables(pattern: Pattern) -> dict[str, Any]:
    """Returns the tables of an architecture file."""
    groups = [{"name": group.name, "pattern": [*group.pattern], "count": group.count} for group in pattern.groups]
    kinds = {
        name: {"where": kind.where, "init": kind.init, "call": kind.call, "fragments": [*kind.fragments]}
        for name, kind in pattern.every.items()
    }
    return {"layers": [_given(group) for group in groups], "kinds": {name: _given(kinds[name]) for name in kinds}}


def _given(table: dict[str, Any]) -> dict[str, Any]:
    """Returns a table without what is left out."""
    return {key: value for key, value in table.items() if value}
