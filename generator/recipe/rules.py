"""Rules that select fragments by a setting of config.json: `[[structure]]`, and `[[neutral]]`; see docs/families.md."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from generator.code.traced import Origin
from generator.errors import LoomError, nearest
from generator.recipe.library import Library
from generator.recipe.pattern import AnyFile, Group, Kind, read_groups, read_kinds
from generator.recipe.schema import NOT_GIVEN, RuleTable


@dataclass(frozen=True)
class Rule:
    """A selection for a checkpoint, by a setting of its config.json.

    Attributes:
        names: the settings that it covers.
        groups, kinds: the layers; without groups, the `where` of each kind gives the pattern.
        hf: the tables of `[hf]` that it adds: table -> key -> value, as in TOML.
    """

    table: RuleTable
    names: tuple[str, ...]
    groups: tuple[Group, ...]
    kinds: dict[str, Kind]
    hf: dict[str, dict[str, Any]]
    origin: Origin

    def covers(self, setting: str, hf: dict[str, Any]) -> bool:
        """Returns whether it applies to the value of a setting in a completed config.json."""
        actual, value = hf.get(setting), self.table.value
        if setting not in self.names:
            return False
        if self.table.given is not None:
            return (actual is not None) == self.table.given
        if isinstance(actual, dict) and isinstance(value, dict):  # some entries of a table
            return value.items() <= actual.items()
        return actual == value

    def settings_for(self, hf: dict[str, Any]) -> dict[str, object]:
        """Returns the settings of the weaver that it changes."""
        filled = {name: hf[setting] for name, setting in self.table.fills.items() if hf.get(setting) is not None}
        return {**self.table.settings, **filled}


@dataclass(frozen=True)
class Neutral:
    """Settings that do not change the computation where an expression over config.json holds."""

    names: tuple[str, ...]
    where: str
    origin: Origin


def read_rules(files: Iterable[AnyFile], library: Library) -> tuple[Rule, ...]:
    """Returns the rules of some files, in order."""
    return tuple(_read_rule(table, n, file, library) for file in files for n, table in enumerate(file.data.structure))


def read_neutral(files: Iterable[AnyFile]) -> tuple[Neutral, ...]:
    """Returns the neutral settings that some files declare."""
    return tuple(
        Neutral(table.settings, table.where, file.origin("neutral", number, "where"))
        for file in files
        for number, table in enumerate(file.data.neutral)
    )


def _read_rule(table: RuleTable, number: int, file: AnyFile, library: Library) -> Rule:
    keys = ("structure", number)
    origin = file.origin(*keys)
    if (table.value is NOT_GIVEN) == (table.given is None):
        keys_present = "neither `value` nor `given`" if table.given is None else "both `value` and `given`"
        remedy = "Give the value of the setting to which it applies, by one of them."
        raise LoomError(f"this rule has {keys_present}", str(origin), remedy)
    kinds = read_kinds(table.kinds, file, *keys)
    lists: dict[tuple[str, ...], tuple[str, ...]] = {("without",): table.without, ("fragments",): table.fragments}
    for name, kind in kinds.items():
        lists |= {("kinds", name, "fragments"): kind.fragments, ("kinds", name, "absent"): kind.absent}
    for place, names in lists.items():
        for name in names:
            if f"fragments/{name}.py" not in library.files:
                where = str(file.origin(*keys, *place))
                raise LoomError(f"unknown fragment {name!r}", where, nearest(name, library.fragments()))
    return Rule(
        table=table,
        names=(table.setting,) if isinstance(table.setting, str) else table.setting,
        groups=read_groups(table.layers, kinds, file, *keys),
        kinds=kinds,
        hf={name: stated for name, stated in file.plain["structure"][number].get("hf", {}).items() if stated},
        origin=origin,
    )
