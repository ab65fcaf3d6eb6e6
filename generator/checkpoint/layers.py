"""Finds the pattern of layers of a checkpoint, by the `where` of the kinds of its family."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

from generator.checkpoint.files import MAX_LAYERS
from generator.code.traced import Origin
from generator.errors import LoomError, short
from generator.recipe.expressions import evaluate
from generator.recipe.pattern import Kind, Pattern, find_groups
from generator.recipe.recipe import Recipe


class KindError(LoomError):
    """An error of a layer whose kind the settings of config.json do not give.

    Attributes:
        settings: those that the `where` reads.
    """

    def __init__(self, reason: str, expression: str, hf: dict[str, Any], line: Origin, where: str):
        self.settings = [name for name in re.findall(r"""hf(?:\[|\.get\()\s*['"](\w+)""", expression) if name in hf]
        values = " and ".join(f"{name} is {short(json.dumps(hf[name]))}" for name in self.settings)
        remedy = f"Fix the settings; or the `where` at {line}, if it is yours."
        super().__init__(f"{values}: {reason}" if values else reason, where, remedy)


def find_kinds(kinds: dict[str, Kind], hf: dict[str, Any], where: str) -> list[str]:
    """Returns the kind of each layer of a checkpoint, by the `where` of the kinds.

    Args:
        where: the path of config.json, for errors.
    """
    names = []
    for layer in range(hf["num_hidden_layers"]):
        scope = {"hf": hf, "layer": layer}
        matches = [
            name for name, kind in kinds.items() if evaluate_where(kind.where, scope, kind.lines["where"], where)
        ]
        if len(matches) != 1:
            kind = kinds[matches[0] if matches else next(iter(kinds))]
            reason = f"layer {layer} is of {' and of '.join(matches) or 'no kind'}, by the `where` of each kind"
            raise KindError(reason, kind.where, hf, kind.lines["where"], where)
        names += matches
    return names


def evaluate_where(expression: str, names: dict[str, Any], line: Origin, where: str) -> bool:
    """Returns whether a `where` holds.

    Args:
        names: values of `hf` and possibly `layer`.
        line: that of the `where`.
        where: the path of config.json, for errors.
    """
    try:
        return bool(evaluate(expression, names))
    except KeyError as error:
        reason = f"the setting {error.args[0]} is left out, which the `where` at {line} reads"
        raise KindError(reason, expression, names["hf"], line, where) from None
    except Exception as error:  # of any class, as the expression is anybody's
        reason = f"the `where` at {line} cannot be evaluated: {type(error).__name__}: {error}"
        raise KindError(reason, expression, names["hf"], line, where) from None


def find_other_pattern(
    recipe: Recipe, left_out: Collection[str], config: SimpleNamespace, hf: dict[str, Any], where: str
) -> Pattern | None:
    """Returns the pattern of a checkpoint by the `where` of the kinds, None if the package is woven for it.

    Args:
        left_out: fragments to leave out of its kinds.
        where: the path of config.json, for errors.
    """
    kinds = {name: kind for name, kind in recipe.pattern.all_kinds.items() if kind.where}
    if not kinds or hf.get("num_hidden_layers") is None:
        return None
    expected = find_kinds(kinds, hf, where)
    if expected == _find_woven_kinds(recipe.pattern, config) and {*expected} == recipe.pattern.kinds.keys():
        return None
    left_out = recipe.pattern.kind_fragments - {fragment.name for fragment in recipe.fragments} | {*left_out}
    return Pattern(find_groups(expected), {name: kinds[name].without(left_out) for name in kinds if name in expected})


def _find_woven_kinds(pattern: Pattern, config: SimpleNamespace) -> list[str]:
    """Returns the kind of each layer by a pattern at a checkpoint's sizes, [] if these do not fill the pattern."""
    kinds: dict[int, str] = {}
    stacks = iter(pattern.numbers().values())
    for group in pattern.groups:
        try:
            numbers = [evaluate(next(stacks), {"config": config}) for _ in group.pattern]
        except (TypeError, AttributeError, ArithmeticError):
            return []
        if len(set(map(len, numbers))) > 1 or len(numbers[0]) > MAX_LAYERS:
            return []  # the last period is not whole, or there are too many layers
        for kind, layers in zip(group.pattern, numbers, strict=True):
            kinds |= dict.fromkeys(layers, kind)
    return [kinds[layer] for layer in sorted(kinds)]


def is_filled(pattern: Pattern, preset: dict[str, object]) -> bool:
    """Returns whether the layers of a preset fill a pattern: each group has layers, and no layer is left over."""
    config = SimpleNamespace(**preset)
    try:
        counts = [evaluate(group.count, {"config": config}) for group in pattern.groups]
        layers = sum(count * group.period for count, group in zip(counts, pattern.groups, strict=True))
        return min(counts) > 0 and layers == config.layers
    except (AttributeError, TypeError, ArithmeticError):  # a count needs a size that the preset lacks
        return False


def count_filling_layers(pattern: Pattern, preset: dict[str, object]) -> int | None:
    """Returns the smallest number of layers, from that of the preset, with which the preset fills a pattern."""
    first = preset.get("layers")
    numbers = range(first, first + 500) if isinstance(first, int) else ()
    return next((n for n in numbers if is_filled(pattern, {**preset, "layers": n})), None)


def to_tables(pattern: Pattern) -> dict[str, Any]:
    """Returns the tables `layers` and `kinds` of an architecture file, without empty values."""
    groups = [{"name": group.name, "pattern": [*group.pattern], "count": group.count} for group in pattern.groups]
    kinds = {
        name: {"where": kind.where, "init": kind.init, "call": kind.call, "fragments": [*kind.fragments]}
        for name, kind in pattern.all_kinds.items()
    }
    return {"layers": [*map(drop_empty, groups)], "kinds": {name: drop_empty(kind) for name, kind in kinds.items()}}


def drop_empty(table: dict[str, Any]) -> dict[str, Any]:
    """Returns a table without empty values."""
    return {key: value for key, value in table.items() if value}
