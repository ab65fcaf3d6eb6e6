"""What a config.json chooses: rules of the family's architecture files, and of templates/package.toml for all.

[[structure]]                          # what to select where the family's package is woven for something else
setting = "sliding_window"             # or a list of settings
given = false                          # it is null or left out; true: it has any value; or value = VALUE
without = ["model/sliding_window"]
fragments = ["model/no_window"]
settings = { unroll = true }           # of the weaver
fills = { step = "sparse_step" }       # settings of the weaver that take the value of one of config.json

[[structure.layers]]                   # as in an architecture; left out, the `where` of the kinds says the pattern
pattern = ["full"]

[structure.kinds.full]

[structure.presets.tiny]               # fields that the fragments add

[structure.hf.settings]                # what its checkpoints say: [hf] of an architecture, with all its tables
attention_bias = true

[[neutral]]                            # settings that change nothing that is computed
settings = ["factor"]
where = "hf['scaling'] is None"        # an expression over config.json; left out, always
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET

from generator.code.traced import Origin
from generator.errors import LoomError, nearest
from generator.recipe.library import Library
from generator.recipe.pattern import AnyFile, Group, Kind, read_groups, read_kinds
from generator.recipe.schema import RuleTable


@dataclass(frozen=True)
class Rule:
    """What to select for a checkpoint by a setting of its config.json.

    Attributes:
        names: of the settings.
        given: whether a setting has a value, or None where `value` says which.
        fills: setting of the weaver -> the setting of config.json whose value it takes.
        groups, kinds: the layers; without groups the `where` of the kinds says their pattern.
        presets: preset -> field -> value, for fields that the fragments add.
        hf: what it states of checkpoints: table -> key -> value.
    """

    names: tuple[str, ...]
    given: bool | None
    value: object
    without: tuple[str, ...]
    fragments: tuple[str, ...]
    settings: dict[str, object]
    fills: dict[str, str]
    groups: tuple[Group, ...]
    kinds: dict[str, Kind]
    presets: dict[str, dict[str, object]]
    hf: dict[str, dict[str, Any]]
    origin: Origin

    def covers(self, setting: str, hf: dict[str, Any]) -> bool:
        """Whether it says what to select for the value that a completed config.json has for a setting."""
        found = hf.get(setting)
        if setting not in self.names:
            return False
        if self.given is not None:
            return (found is not None) == self.given
        if isinstance(found, dict) and isinstance(self.value, dict):  # a table, of which it has the entries
            return self.value.items() <= found.items()
        return found == self.value

    def settings_for(self, hf: dict[str, Any]) -> dict[str, object]:
        """What it sets for the weaver."""
        return self.settings | {
            name: hf[setting] for name, setting in self.fills.items() if hf.get(setting) is not None
        }


@dataclass(frozen=True)
class Neutral:
    """Settings that change nothing that is computed, where an expression over config.json holds."""

    names: tuple[str, ...]
    where: str
    origin: Origin


def read_rules(files: Iterable[AnyFile], library: Library) -> tuple[Rule, ...]:
    """The rules of some files, in order."""
    return tuple(_rule(table, n, file, library) for file in files for n, table in enumerate(file.data.structure))


def read_neutral(files: Iterable[AnyFile]) -> tuple[Neutral, ...]:
    """The settings that some files say to change nothing."""
    return tuple(
        Neutral(table.settings, table.where, file.origin("neutral", number, "where"))
        for file in files
        for number, table in enumerate(file.data.neutral)
    )


def _rule(table: RuleTable, number: int, file: AnyFile, library: Library) -> Rule:
    keys = ("structure", number)
    origin = file.origin(*keys)
    if (table.value is UNSET) == (table.given is None):
        message = "this rule has " + (
            "neither `value` nor `given`" if table.given is None else "both `value` and `given`"
        )
        raise LoomError(message, str(origin), "Say for which value of the setting it holds by one of them.")
    kinds = read_kinds(table.kinds, file, *keys)
    for key, names in (("without", table.without), ("fragments", table.fragments)):
        _check_known(names, file.origin(*keys, key), library)
    for name, kind in kinds.items():
        _check_known(kind.fragments, file.origin(*keys, "kinds", name, "fragments"), library)
        _check_known(kind.absent, file.origin(*keys, "kinds", name, "absent"), library)
    return Rule(
        names=(table.setting,) if isinstance(table.setting, str) else table.setting,
        given=table.given,
        value=table.value,
        without=table.without,
        fragments=table.fragments,
        settings=table.settings,
        fills=table.fills,
        groups=read_groups(table.layers, kinds, file, *keys),
        kinds=kinds,
        presets=table.presets,
        hf={name: said for name, said in msgspec.to_builtins(table.hf).items() if said},
        origin=origin,
    )


def _check_known(names: Iterable[str], where: Origin, library: Library) -> None:
    for name in names:
        if f"fragments/{name}.py" not in library.files:
            raise LoomError(f"unknown fragment {name!r}", str(where), nearest(name, library.fragments()))
