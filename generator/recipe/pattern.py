"""The pattern in which a model's layers repeat: data of the architecture, from which the weaver writes them out.

[[layers]]                       # layers 0 to 2
name = "dense"
pattern = ["dense"]
count = "config.dense_layers"

[[layers]]                       # the rest
pattern = ["sparse"]
count = "config.layers - config.dense_layers"

[kinds.sparse]
fragments = ["model/experts"]    # that only this kind of layer has

A kind with a `where` may be in no pattern: then it is for checkpoints that have such layers. `absent` lists fragments
for checkpoints without layers of a kind of the pattern.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby, pairwise

from generator.code.traced import Origin
from generator.errors import LoomError, nearest, short
from generator.recipe.expressions import is_count
from generator.recipe.schema import ArchitectureToml, GroupTable, KindTable
from generator.recipe.toml import Toml

ALL = "config.layers"  # the number of layers of a model
KEYS = "fragments", "absent", "where", "init", "call"  # of a kind


@dataclass(frozen=True)
class Kind:
    """A kind of layer.

    Attributes:
        fragments: names of fragments that only some kinds of layer have.
        absent: names of fragments for a checkpoint without layers of this kind.
        where: an expression over `hf`, a checkpoint's config.json, and `layer`, a number: is this layer of this kind?
        init, call: parameter -> expression of an argument that its layers are made with, or called with.
        lines: key -> its line.
    """

    name: str
    fragments: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    where: str = ""
    init: dict[str, str] = field(default_factory=dict)
    call: dict[str, str] = field(default_factory=dict)
    origin: Origin | None = None
    lines: dict[str, Origin] = field(default_factory=dict)

    def without(self, names: Collection[str]) -> Kind:
        """Returns the kind without some fragments."""
        return replace(self, fragments=tuple(name for name in self.fragments if name not in names))


@dataclass(frozen=True)
class Group:
    """Layers that are scanned together: a pattern of kinds, repeated.

    Attributes:
        name: '' for the main group.
        count: number of repetitions, an expression over `config`.
    """

    name: str
    pattern: tuple[str, ...]
    count: str
    origin: Origin | None = None

    @property
    def period(self) -> int:
        return len(self.pattern)

    @property
    def attributes(self) -> list[str]:
        """The name of each layer of the pattern: its kind, with a number if the pattern repeats the kind."""
        numbered = [f"{kind}_{self.pattern[:place].count(kind)}" for place, kind in enumerate(self.pattern)]
        return [
            kind if self.pattern.count(kind) == 1 else name for kind, name in zip(self.pattern, numbered, strict=True)
        ]

    @property
    def layer_count(self) -> str:
        """The number of layers, an expression."""
        return self.count if self.period == 1 else f"{parenthesize(self.count)} * {self.period}"


@dataclass(frozen=True)
class Pattern:
    """All groups of an architecture, in order, and the kinds of layer.

    Attributes:
        kinds: those of layers in the groups.
        spare: other kinds, for checkpoints.
        further: layers after the last one, which fragments add: the path of their stack, and their count.
    """

    groups: tuple[Group, ...]
    kinds: dict[str, Kind]
    spare: dict[str, Kind] = field(default_factory=dict)
    further: tuple[tuple[str, ...], ...] = ()

    @property
    def arguments(self) -> dict[str, Origin]:
        """The arguments that layers of some kind are made or called with."""
        return {name: kind.origin or Origin("", 1) for kind in self.kinds.values() for name in (*kind.init, *kind.call)}

    @property
    def all_kinds(self) -> dict[str, Kind]:
        """All kinds of layer, the spare ones last."""
        return self.kinds | self.spare

    @property
    def last(self) -> Kind:
        """The kind of the last layer."""
        return self.kinds[self.groups[-1].pattern[-1]]

    def period_class(self, group: Group, name: str = "Period") -> str:
        """Returns the name of the class of a group's period: that of the fragment, unless several groups have one."""
        several = sum(other.period > 1 for other in self.groups) > 1
        return f"{group.name.title().replace('_', '')}{name}" if several else name

    @property
    def kind_fragments(self) -> set[str]:
        """The fragments that only some kinds of layer have."""
        return {name for kind in self.kinds.values() for name in kind.fragments}

    def kinds_with(self, fragment: str) -> list[Kind]:
        """Returns the kinds whose layers have a fragment: those that select it, or all if none does."""
        selecting = [kind for kind in self.kinds.values() if fragment in kind.fragments]
        return selecting or list(self.kinds.values())

    def count_of(self, kinds: Collection[str], further: bool = True) -> str:
        """Returns the number of layers of some kinds, with or without further ones, as an expression."""
        counted = [ALL] if self.kinds.keys() == {*kinds} else []
        fixed = 0
        for group in () if counted else self.groups:
            per_period = sum(kind in kinds for kind in group.pattern)
            if group.count.isdecimal():
                fixed += int(group.count) * per_period
            elif per_period:
                counted.append(group.count if per_period == 1 else f"{_as_first_factor(group.count)} * {per_period}")
        counted += [str(fixed)] if fixed else []
        return " + ".join(counted + [count for _, count in self.further if further and self.last.name in kinds])

    def numbers(self) -> dict[str, str]:
        """Returns the path of each stack of layers -> the numbers of its layers, an expression.

        A stack of further layers has two paths: that of the layers, and that of their parameters besides.
        """
        numbers, end = {path: numbers for path, _, numbers in self._stacks()}, ALL
        for stack, count in self.further:
            numbers |= dict.fromkeys((stack, f"{stack}.layer"), f"range({end}, {end} + {count})")
            end = f"{end} + {count}"
        return numbers

    def numbers_of(self, kinds: Collection[str]) -> str:
        """Returns the numbers of the layers of some kinds, as an expression."""
        if self.kinds.keys() == {*kinds}:
            return f"range({ALL})"
        ranges = [numbers for _, kind, numbers in self._stacks() if kind in kinds]
        return ranges[0] if len(ranges) == 1 else f"sorted([*{', *'.join(ranges)}])"

    def _stacks(self) -> list[tuple[str, str, str]]:
        """Returns the path of each stack of layers, its kind, and the numbers of its layers as an expression."""
        stacks, before = [], ""
        for group in self.groups:
            prefix = f"{group.name}_layers" if group.name else "layers"
            end = ALL if group is self.groups[-1] else " + ".join(filter(None, (before, group.layer_count)))
            if group.period == 1:
                stacks.append((prefix, group.pattern[0], f"range({before}, {end})" if before else f"range({end})"))
            else:
                for place, (attribute, kind) in enumerate(zip(group.attributes, group.pattern, strict=True)):
                    start = " + ".join(filter(None, (before, str(place) if place or not before else "")))
                    stacks.append((f"{prefix}.{attribute}", kind, f"range({start}, {end}, {group.period})"))
            before = end
        return stacks


def _as_first_factor(expression: str) -> str:
    """Returns an expression as the first factor of a product: a quotient needs no parentheses there."""
    outer = re.sub(r"\([^()]*\)", "", expression)
    return parenthesize(expression) if "+" in outer or "-" in outer else expression


def parenthesize(expression: str) -> str:
    """Returns an expression as a factor of a product."""
    return f"({expression})" if "+" in expression or "-" in expression else expression


def read_pattern(files: Sequence[Toml[ArchitectureToml]]) -> Pattern:
    """Returns the pattern of an architecture or of its nearest base that has one; else all layers are of one kind.

    Args:
        files: the lineage of the architecture, the first base first.
    """
    newest = files[::-1]
    file = next((file for file in newest if file.data.layers), None)
    if file is None:
        return Pattern((Group("", ("",), ALL),), {"": Kind("")})
    kinds = read_kinds(next((other.data.kinds for other in newest if other.data.kinds), {}))
    return make_pattern(read_groups(file.data.layers, kinds), kinds)


def make_pattern(groups: tuple[Group, ...], kinds: dict[str, Kind]) -> Pattern:
    """Returns a pattern, its kinds in the order of the layers; kinds that are in no group are spare."""
    names = dict.fromkeys(kind for group in groups for kind in group.pattern)
    used = {name: kinds[name] for name in names}
    return Pattern(groups, used, {name: kind for name, kind in kinds.items() if name not in names})


def read_kinds(tables: dict[str, KindTable]) -> dict[str, Kind]:
    """Returns the kinds of layer of some tables."""
    return {
        name: Kind(
            name=name,
            origin=table.origin(),
            lines={key: table.origin(key) for key in KEYS},
            **{key: getattr(table, key) for key in KEYS},
        )
        for name, table in tables.items()
    }


def read_groups(tables: Sequence[GroupTable], kinds: dict[str, Kind]) -> tuple[Group, ...]:
    """Returns the groups of layers of some tables."""
    groups: list[Group] = []
    for table in tables:
        origin = table.origin()
        if not table.pattern:
            raise LoomError("a group of layers has no pattern", str(origin), 'Write pattern = ["KIND", ...].')
        if not table.count and len(tables) > 1:
            remedy = 'Write count = "an expression over config".'
            raise LoomError("one of several groups of layers has no count", str(origin), remedy)
        for kind in table.pattern:
            if kind not in kinds:
                raise LoomError(f"unknown kind of layer {kind!r}", str(table.origin("pattern")), nearest(kind, kinds))
        if table.name in [group.name for group in groups]:
            raise LoomError("two groups of layers have one name", str(origin), "Give each a `name`.")
        if table.count and not is_count(table.count):
            remedy = "Write whole numbers and sizes such as config.layers, with + - * // % between them."
            raise LoomError(f"{short(table.count)!r} is not a number of layers", str(table.origin("count")), remedy)
        default = ALL if len(table.pattern) == 1 else f"{ALL} // {len(table.pattern)}"
        groups.append(Group(table.name, table.pattern, table.count or default, origin))
    for name, spare in make_pattern(tuple(groups), kinds).spare.items():
        if not spare.where:
            remedy = "Put it into a pattern, give it a `where`, or remove it."
            raise LoomError(f"no layer is of the kind {name!r}", str(spare.origin), remedy)
    return tuple(groups)


def find_groups(kinds: list[str]) -> tuple[Group, ...]:
    """Returns the shortest groups for the kinds of all layers: single layers, a period of up to 12, single layers."""
    changes = [0, *accumulate(int(kind != following) for kind, following in pairwise(kinds))]
    runs_before = [0, *(1 + change for change in changes)]  # in kinds[:n]
    runs_after = [*(changes[-1] - change + 1 for change in changes), 0]  # in kinds[n:]
    best: tuple[int, int, int] = (len(kinds), 0, len(kinds))  # start, period, end of the periods
    cost = (runs_before[-1] + 1, 0)  # layers that are written out; then minus those that repeat
    for start in range(len(kinds)):
        if runs_before[start] >= cost[0]:
            break  # no later start is better
        if start and changes[start - 1] == changes[min(start + 12, len(kinds) - 1)]:
            continue  # nor is one inside a long run
        for period in range(1, min(len(kinds) - start, 12) + 1):
            unit, end = kinds[start : start + period], start
            while kinds[end : end + period] == unit:
                end += period
            candidate = (runs_before[start] + period + runs_after[end], start - end)
            if end - start >= min(2 * period, len(kinds)) and candidate < cost:
                best, cost = (start, period, end), candidate
    start, period, end = best
    groups = _group_runs("first", kinds[:start])
    if period:
        outside = start + len(kinds) - end
        rest = f"{ALL} - {outside}" if outside else ALL
        count = rest if period == 1 else f"{parenthesize(rest)} // {period}"
        groups.append(Group("", tuple(kinds[start : start + period]), count))
    return (*groups, *_group_runs("last", kinds[end:]))


def _group_runs(name: str, kinds: list[str]) -> list[Group]:
    """Returns a group for each run of one kind."""
    return [Group(f"{name}_{i}", (kind,), str(len([*run]))) for i, (kind, run) in enumerate(groupby(kinds))]
