"""Rules that select fragments by a setting of config.json: the tables `[[structure]]`, see docs/families.md."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from generator.errors import LoomError, nearest
from generator.recipe.library import Library
from generator.recipe.pattern import Group, Kind, read_groups, read_kinds
from generator.recipe.schema import NOT_GIVEN, RuleTable
from generator.recipe.typed import TomlTable


@dataclass(frozen=True)
class Rule:
    """A selection for a checkpoint, by a setting of its config.json.

    Attributes:
        groups, kinds: the layers; without groups, the `where` of each kind gives the pattern.
    """

    table: RuleTable
    groups: tuple[Group, ...]
    kinds: dict[str, Kind]

    @property
    def names(self) -> tuple[str, ...]:
        """The settings that it covers."""
        return (self.table.setting,) if isinstance(self.table.setting, str) else self.table.setting

    @property
    def hf(self) -> dict[str, dict[str, Any]]:
        """The tables of `[hf]` that it adds: table -> key -> value, as in TOML."""
        return {name: table for name, table in self.table.plain.get("hf", {}).items() if table}

    def covers(self, setting: str, hf: dict[str, Any]) -> bool:
        """Returns whether it applies to the value of a setting in a completed config.json."""
        value = self.table.value
        if setting not in self.names:
            return False
        actual = hf.get(setting.partition(".")[0] if isinstance(value, dict) else setting)
        if self.table.given is not None:
            return (actual is not None) == self.table.given
        if isinstance(actual, dict) and isinstance(value, dict):  # some entries of a table
            return value.items() <= actual.items()
        return actual == value

    def settings_for(self, hf: dict[str, Any]) -> dict[str, object]:
        """Returns the settings of the weaver that it changes."""
        filled = {name: hf[setting] for name, setting in self.table.fills.items() if hf.get(setting) is not None}
        return {**self.table.settings, **filled}


def read_rules(tables: Iterable[RuleTable], library: Library) -> tuple[Rule, ...]:
    """Returns the rules of some tables; refuses unknown fragments in them, and a rule for no value or for two."""
    rules = []
    for table in tables:
        if (table.value is NOT_GIVEN) == (table.given is None):
            keys_present = "neither `value` nor `given`" if table.given is None else "both `value` and `given`"
            remedy = "Give the value of the setting to which it applies, by one of them."
            raise LoomError(f"this rule has {keys_present}", str(table.origin()), remedy)
        lists: list[tuple[TomlTable, str]] = [(table, "without"), (table, "fragments")]
        lists += [(kind, key) for kind in table.kinds.values() for key in ("fragments", "absent")]
        for holder, key in lists:
            for number, name in enumerate(getattr(holder, key)):
                if f"fragments/{name}.py" not in library.files:
                    where = str(holder.origin(key, number))
                    raise LoomError(f"unknown fragment {name!r}", where, nearest(name, library.fragments()))
        kinds = read_kinds(table.kinds)
        rules.append(Rule(table, read_groups(table.layers, kinds), kinds))
    return tuple(rules)
