"""Finds the settings of a config.json that a woven package cannot read, or that nothing covers."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from generator.checkpoint.layers import KindError, evaluate_where
from generator.checkpoint.readers import ConfigReader
from generator.errors import LoomError, short
from generator.recipe.recipe import Recipe
from generator.recipe.typed import has_type

MAX_LISTED = 50  # settings in one error


@dataclass(frozen=True)
class Problem:
    """A setting for which a package is not woven, and the remedy if no rule covers it."""

    setting: str
    message: str
    remedy: str


class UnsupportedSettings(LoomError):
    """An error with all problems of a config.json.

    Attributes:
        settings: those of the problems, without what is in them.
    """

    def __init__(self, problems: list[Problem], where: str):
        texts = [f"{problem.message}\n  {problem.remedy}" for problem in problems[:MAX_LISTED]]
        if len(problems) > MAX_LISTED:
            texts.append(f"and {len(problems) - MAX_LISTED} settings more")
        super().__init__(f"\n{where}: ".join(texts), where)
        self.settings = [problem.setting.partition(".")[0] for problem in problems]


def find_unread(package: ConfigReader, hf: dict[str, Any], family: str, where: str) -> list[Problem]:
    """Returns the settings that a package cannot read: first those of structure, then sizes that are missing."""
    problems = []
    for setting, woven, choice in package.structure(hf, where):
        if hf.get(setting) != woven:
            message = f"{setting} is {_to_json(hf.get(setting))}, and {family} is woven for {_to_json(woven)}"
            remedy = f"No rule covers it. It takes {choice}.{_ignore_remedy(setting)}"
            problems.append(Problem(setting, message, remedy))
    for setting, size in package.sizes():
        if hf.get(setting) is None or setting in read_ignored(package.recipe):
            message = f"{setting} is null, left out or ignored, and {family} reads {size} from it"
            problems.append(Problem(setting, message, "No rule covers it. Give it a value."))
    return problems


def _ignore_remedy(setting: str) -> str:
    """Returns the flag that accepts a setting, or '' for one that says which tensors there are: import wants these."""
    name = setting.partition(".")[0]
    if name.endswith(("bias", "qk_norm", "qk_layernorm", "quantization_config")) or "shared_expert" in name:
        return ""
    return f" Or accept what it would change: --ignore {_to_json(name)[1:-1]}"


def find_wrong_types(package: ConfigReader, hf: dict[str, Any]) -> list[Problem]:
    """Returns the sizes that do not have the type of their field."""
    fields = {member.name: member for fragment in package.recipe.fragments for member in fragment.fields}
    sizes = [(setting, fields[size], hf.get(setting)) for setting, size in package.sizes() if size in fields]
    return [
        Problem(setting, f"{setting} is {_to_json(value)}, and {field.name} is of type {field.kind}", "Fix it.")
        for setting, field, value in sizes
        if value is not None and not has_type(field, tuple(value) if isinstance(value, list) else value)
    ]


def find_uncovered(
    package: ConfigReader, hf: dict[str, Any], full: dict[str, Any], family: str, where: str
) -> list[Problem]:
    """Returns the settings that are on, that may change the computation, and that no fragment reads.

    Args:
        full: config.json with the values of settings that are left out.
        where: the path of config.json, for errors.
    """
    known = {setting for setting, _ in package.sizes()} | {setting for setting, *_ in package.structure(full, where)}
    known |= package.mentioned
    in_neutral, neutral = set[str](), set[str]()
    for table in package.recipe.neutral:
        in_neutral |= {*table.settings}
        with suppress(KindError):  # it does not apply to this config.json
            if evaluate_where(table.where, {"hf": full}, table.origin("where"), where):
                neutral |= {*table.settings}
    types = hf.get("layer_types")
    if isinstance(types, list) and types == ["full_attention"] * len(types):
        known.add("layer_types")  # the same as without it
    others = {
        setting: value for setting, value in hf.items() if setting not in neutral | {*read_ignored(package.recipe)}
    }
    return [
        Problem(
            setting,
            f"no fragment of {family} reads the setting {_to_json(setting)[1:-1]}, which is {_to_json(value)}",
            f"Write a fragment for it, or use a checkpoint without it.{_ignore_remedy(setting)}",
        )
        for setting, value in find_unknown(others, known | neutral, in_neutral)
    ]


def find_unknown(
    settings: dict[str, Any], known: set[str], in_neutral: Collection[str] = ()
) -> Iterator[tuple[str, Any]]:
    """Yields the settings that are on and not known. Those in tables are included: `rope_scaling.factor`.

    Args:
        in_neutral: settings that are on when they are false or 0 too, as a `[[neutral]]` table did not hold.
    """
    inside = known | {name.rpartition(".")[2] for name in known}
    for setting, value in sorted(settings.items()):
        is_off = value in (False, 0, [], {}, "") and setting not in in_neutral
        if value is None or is_off or setting.startswith("_"):
            continue
        if setting not in known:
            yield setting, value
        elif isinstance(value, dict):
            yield from ((f"{setting}.{name}", item) for name, item in find_unknown(value, inside))


def _to_json(value: object) -> str:
    return short(json.dumps(value))


def read_ignored(recipe: Recipe) -> list[str]:
    """Returns the settings of config.json that the architecture accepts though no fragment reads them."""
    ignored = recipe.settings.get("ignored", [])
    if not isinstance(ignored, list) or not all(isinstance(name, str) for name in ignored):
        message, remedy = "the setting `ignored` is not a list of strings", "Give a list of strings under [settings]."
        raise LoomError(message, recipe.architecture_file.path, remedy)
    return ignored
