"""The settings of a config.json that a woven package cannot read, and that nothing covers."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from generator.checkpoint.layers import NoKind, holds
from generator.checkpoint.readers import Readers
from generator.errors import LoomError, short
from generator.recipe.recipe import Recipe
from generator.recipe.typed import is_of

MOST = 50  # that one error names


@dataclass(frozen=True)
class Problem:
    """A setting for which a package was not woven, and what to do where no rule covers it."""

    setting: str
    message: str
    remedy: str


class Unfit(LoomError):
    """The settings of a config.json that a family cannot read."""

    def __init__(self, problems: list[Problem], shown: str):
        texts = [f"{problem.message}\n  {problem.remedy}" for problem in problems[:MOST]]
        if len(problems) > MOST:
            texts.append(f"and {len(problems) - MOST} settings more")
        super().__init__(f"\n{shown}: ".join(texts), shown)
        self.count = len(problems)


def unread(package: Readers, hf: dict[str, Any], family: str, shown: str) -> list[Problem]:
    """Returns the settings that a package cannot read: unsupported structures first, then missing sizes."""
    problems = []
    for setting, woven, choice in package.structure(hf, shown):
        if hf.get(setting) != woven:
            message = f"{setting} is {_json(hf.get(setting))}, and {family} is woven for {_json(woven)}"
            remedy = f"No rule covers it. It takes {choice.rstrip(',')}. {_accept(setting)}"
            problems.append(Problem(setting, message, remedy))
    for setting, size in package.sizes():
        if hf.get(setting) is None:
            message = f"{setting} is null, left out or ignored, and {family} reads {size} from it"
            problems.append(Problem(setting, message, "No rule covers it. Give it a value."))
    return problems


def _accept(setting: str) -> str:
    return f"Or accept what it would change: --ignore {_json(setting.partition('.')[0])[1:-1]}"


def wrong_values(package: Readers, hf: dict[str, Any], recipe: Recipe) -> list[Problem]:
    """Returns the sizes that are not of their field's type."""
    fields = {member.name: member for fragment in recipe.fragments for member in fragment.fields}
    found = [(setting, fields[size], hf.get(setting)) for setting, size in package.sizes() if size in fields]
    return [
        Problem(setting, f"{setting} is {_json(value)}, and {field.name} is of type {field.kind}", "Fix it.")
        for setting, field, value in found
        if value is not None and not is_of(field, tuple(value) if isinstance(value, list) else value)
    ]


def not_covered(
    package: Readers, recipe: Recipe, hf: dict[str, Any], full: dict[str, Any], family: str, shown: str
) -> list[Problem]:
    """Returns the settings that are on, and that no fragment reads or was chosen for, and that change something."""
    known = {setting for setting, _ in package.sizes()} | {setting for setting, *_ in package.structure(full, shown)}
    known |= package.mentioned
    stated, neutral = set[str](), set[str]()
    for table in recipe.neutral:
        stated |= {*table.names}
        try:
            neutral |= {*table.names} if holds(table.where, {"hf": full}, table.origin, shown) else set()
        except NoKind:  # it says nothing of this config.json
            continue
    types = hf.get("layer_types")
    if isinstance(types, list) and types == ["full_attention"] * len(types):
        known.add("layer_types")  # as without it
    others = {setting: value for setting, value in hf.items() if setting not in neutral | {*ignored_by(recipe)}}
    return [
        Problem(
            setting,
            f"no fragment of {family} reads the setting {_json(setting)[1:-1]}, which is {_json(value)}",
            f"Write a fragment for it, or use a checkpoint without it. {_accept(setting)}",
        )
        for setting, value in unknown(others, known | neutral, stated)
    ]


def unknown(settings: dict[str, Any], known: set[str], stated: Collection[str] = ()) -> Iterator[tuple[str, Any]]:
    """Yields the settings that are on and not known, those in tables too: `rope_scaling.factor` is known as such.

    Args:
        stated: settings of which is said what changes nothing: of these, false and 0 may.
    """
    inside = known | {name.rpartition(".")[2] for name in known}
    for setting, value in sorted(settings.items()):
        off = value in (False, 0, [], {}, "") and setting not in stated
        if value is None or off or setting.startswith("_"):
            continue
        if setting not in known:
            yield setting, value
        elif isinstance(value, dict):
            yield from ((f"{setting}.{name}", it) for name, it in unknown(value, inside))


def _json(value: object) -> str:
    return short(json.dumps(value))


def ignored_by(recipe: Recipe) -> list[str]:
    """Returns the settings of config.json that the architecture accepts though nothing covers them."""
    found = recipe.settings.get("ignored", [])
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        message, remedy = "the setting `ignored` is not a list of strings", "Give a list of strings under [settings]."
        raise LoomError(message, recipe.architecture_file.path, remedy)
    return found
