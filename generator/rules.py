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

[[neutral]]                            # settings that change nothing that is computed
settings = ["factor"]
where = "hf['scaling'] is None"        # an expression over config.json; left out, always
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from generator.errors import LoomError, nearest
from generator.layers import Group, Kind, read_groups, read_kinds
from generator.library import Library
from generator.traced import Origin

if TYPE_CHECKING:
    from generator.toml import Toml


@dataclass(frozen=True)
class Rule:
    """What to select for a checkpoint by a setting of its config.json.

    Attributes:
        names: of the settings.
        given: whether a setting has a value, or None where `value` says which.
        fills: setting of the weaver -> the setting of config.json whose value it takes.
        groups, kinds: the layers; without groups the `where` of the kinds says their pattern.
        presets: preset -> field -> value, for fields that the fragments add.
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
        return self.settings | {name: hf[setting] for name, setting in self.fills.items() if setting in hf}


@dataclass(frozen=True)
class Neutral:
    """Settings that change nothing that is computed, where an expression over config.json holds."""

    names: tuple[str, ...]
    where: str
    origin: Origin


def read_rules(files: Iterable[Toml], library: Library) -> tuple[Rule, ...]:
    """The rules of some files, in order.

    Raises:
        LoomError: a rule that does not say for which value, or that names a fragment or a kind which there is not.
    """
    return tuple(_rule(table, file, after, library) for file in files for table, after in _tables(file, "structure"))


def read_neutral(files: Iterable[Toml]) -> tuple[Neutral, ...]:
    """The settings that some files say to change nothing."""
    return tuple(
        Neutral(tuple(table["settings"]), table.get("where", "True"), file.origin("where", "neutral", after))
        for file in files
        for table, after in _tables(file, "neutral")
    )


def _tables(file: Toml, name: str) -> Iterator[tuple[dict, int]]:
    """The tables of a list, with the lines on which they begin."""
    for number, table in enumerate(file.data.get(name, ())):
        yield table, file.line_of_table(name, number)


def _rule(table: dict, file: Toml, after: int, library: Library) -> Rule:
    origin = Origin(file.path, after)
    if ("value" in table) == ("given" in table):
        message = "this rule has " + ("both `value` and `given`" if "value" in table else "neither `value` nor `given`")
        raise LoomError(message, str(origin), "Say for which value of the setting it holds by one of them.")
    kinds = read_kinds(table, file, "structure.", after)
    groups = read_groups(table, kinds, file, "structure.", after)
    for key in "without", "fragments":
        _check_known(table.get(key, ()), file.origin(key, "structure", after), library)
    for name, kind in kinds.items():
        _check_known(kind.fragments, file.origin("fragments", f"structure.kinds.{name}", after), library)
    names = table["setting"]
    return Rule(
        names=(names,) if isinstance(names, str) else tuple(names),
        given=table.get("given"),
        value=table.get("value"),
        without=tuple(table.get("without", ())),
        fragments=tuple(table.get("fragments", ())),
        settings=table.get("settings", {}),
        fills=table.get("fills", {}),
        groups=groups,
        kinds=kinds,
        presets=table.get("presets", {}),
        origin=origin,
    )


def _check_known(names: Iterable[str], where: Origin, library: Library) -> None:
    for name in names:
        if f"fragments/{name}.py" not in library.files:
            raise LoomError(f"unknown fragment {name!r}", str(where), nearest(name, library.fragments()))
