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

A kind with a `where` may be in no pattern: then it is for checkpoints that have layers of it. `absent` names the
fragments that stand in for a kind of the pattern of which a checkpoint has no layers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby, pairwise

from generator.code.traced import Origin
from generator.errors import LoomError, nearest, short
from generator.recipe.expressions import is_count
from generator.recipe.schema import ArchitectureToml, GroupTable, KindTable, PackageToml
from generator.recipe.toml import Toml

ALL = "config.layers"  # how many layers a model has
KEYS = "fragments", "absent", "where", "init", "call"  # of a kind
AnyFile = Toml[ArchitectureToml] | Toml[PackageToml]


@dataclass(frozen=True)
class Kind:
    """A kind of layer.

    Attributes:
        fragments: names of those that only some kinds of layer have.
        absent: names of those that a checkpoint gets which has no layer of this kind.
        where: an expression over `hf`, a checkpoint's config.json, and `layer`, a number: whether it is of this kind.
        init, call: parameter -> expression that its layers are given when they are made, and when they are called.
        lines: key -> the line on which it stands.
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
        name: of the group, '' for the main one.
        count: how often the pattern repeats, an expression over `config`.
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
        """The name of each layer of the pattern."""
        often, seen = Counter(self.pattern), Counter[str]()
        names = []
        for kind in self.pattern:
            names.append(kind if often[kind] == 1 else f"{kind}_{seen[kind]}")
            seen[kind] += 1
        return names

    @property
    def layers(self) -> str:
        """How many layers it has, as an expression."""
        return self.count if self.period == 1 else f"{factor(self.count)} * {self.period}"


@dataclass(frozen=True)
class Pattern:
    """All groups of an architecture, in order, the kinds of layer in them, and `spare` kinds, that no layer is of.

    `further` are layers after the last, which fragments have: the path of what holds each, and how many there are.
    """

    groups: tuple[Group, ...]
    kinds: dict[str, Kind]
    spare: dict[str, Kind] = field(default_factory=dict)
    further: tuple[tuple[str, ...], ...] = ()

    @property
    def given(self) -> dict[str, Origin]:
        """The arguments that layers of some kind are made or called with."""
        return {name: kind.origin or Origin("", 1) for kind in self.kinds.values() for name in (*kind.init, *kind.call)}

    @property
    def every(self) -> dict[str, Kind]:
        """All kinds of layer, the spare ones last."""
        return self.kinds | self.spare

    @property
    def last(self) -> Kind:
        """The kind of the last layer."""
        return self.kinds[self.groups[-1].pattern[-1]]

    @property
    def of_kinds(self) -> set[str]:
        """The fragments that only some kinds of layer have."""
        return {name for kind in self.kinds.values() for name in kind.fragments}

    def having(self, fragment: str) -> list[Kind]:
        """Returns the kinds whose layers a fragment takes part in: all, unless some select it and others do not."""
        chosen = [kind for kind in self.kinds.values() if fragment in kind.fragments]
        return chosen or list(self.kinds.values())

    def amount(self, kinds: Iterable[str]) -> str:
        """Returns how many layers there are of some kinds, the further ones too, as an expression."""
        wanted = set(kinds)
        terms = [ALL] if wanted == set(self.kinds) else []
        for group in () if terms else self.groups:
            often = sum(kind in wanted for kind in group.pattern)
            if often:
                terms.append(group.count if often == 1 else f"{factor(group.count)} * {often}")
        return " + ".join(terms + [count for _, count in self.further if self.last.name in wanted])

    def numbers(self) -> dict[str, str]:
        """Returns, by the path of a stack of layers, the numbers of its layers as an expression.

        What further layers have beside a layer like the last one stands at a path of its own.
        """
        found, end = {path: numbers for path, _, numbers in self._stacks()}, ALL
        for stack, count in self.further:
            found |= dict.fromkeys((stack, f"{stack}.layer"), f"range({end}, {end} + {count})")
            end = f"{end} + {count}"
        return found

    def numbers_of(self, kinds: Iterable[str]) -> str:
        """Returns the numbers of the layers of some kinds, as an expression."""
        wanted = set(kinds)
        if wanted == set(self.kinds):
            return f"range({ALL})"
        ranges = [numbers for _, kind, numbers in self._stacks() if kind in wanted]
        return ranges[0] if len(ranges) == 1 else f"sorted([*{', *'.join(ranges)}])"

    def _stacks(self) -> list[tuple[str, str, str]]:
        """Returns the path of each stack of layers, its kind, and the numbers of its layers as an expression."""
        found, before = [], ""
        for index, group in enumerate(self.groups):
            prefix = f"{group.name}_layers" if group.name else "layers"
            end = ALL if index == len(self.groups) - 1 else " + ".join(filter(None, (before, group.layers)))
            if group.period == 1:
                found.append((prefix, group.pattern[0], f"range({before}, {end})" if before else f"range({end})"))
            else:
                for place, (attribute, kind) in enumerate(zip(group.attributes, group.pattern, strict=True)):
                    start = " + ".join([*([before] if before else []), *([str(place)] if place or not before else [])])
                    found.append((f"{prefix}.{attribute}", kind, f"range({start}, {end}, {group.period})"))
            before = end
        return found


def factor(expression: str) -> str:
    """Returns an expression as it stands in a product."""
    return f"({expression})" if "+" in expression or "-" in expression else expression


def read_pattern(files: Iterable[Toml[ArchitectureToml]]) -> Pattern:
    """Returns the pattern that an architecture or the nearest of its bases gives; without one all layers are alike.

    Args:
        files: the lineage of the architecture, the first base first.
    """
    newest = list(reversed(list(files)))
    file = next((file for file in newest if file.data.layers), None)
    if file is None:
        return Pattern((Group("", ("",), ALL),), {"": Kind("")})
    source = next((other for other in newest if other.data.kinds), file)
    kinds = read_kinds(source.data.kinds, source)
    return make_pattern(read_groups(file.data.layers, kinds, file), kinds)


def make_pattern(groups: tuple[Group, ...], kinds: dict[str, Kind]) -> Pattern:
    """Returns a pattern of the kinds that its groups are of; the others are spare."""
    names = {kind for group in groups for kind in group.pattern}
    used = {name: kind for name, kind in kinds.items() if name in names}
    return Pattern(groups, used, {name: kind for name, kind in kinds.items() if name not in names})


def read_kinds(tables: dict[str, KindTable], file: AnyFile, *keys: str | int) -> dict[str, Kind]:
    """Returns some kinds of layer.

    Args:
        keys: of the table of the file that they stand in.
    """
    return {
        name: Kind(
            name=name,
            origin=file.origin(*keys, "kinds", name),
            lines={key: file.origin(*keys, "kinds", name, key) for key in KEYS},
            **{key: getattr(table, key) for key in KEYS},
        )
        for name, table in tables.items()
    }


def read_groups(
    tables: Sequence[GroupTable], kinds: dict[str, Kind], file: AnyFile, *keys: str | int
) -> tuple[Group, ...]:
    """Returns some groups of layers.

    Args:
        keys: of the table of the file that they stand in.
    """
    groups: list[Group] = []
    for number, table in enumerate(tables):
        origin = file.origin(*keys, "layers", number)
        if not table.pattern:
            raise LoomError("a group of layers has no pattern", str(origin), 'Write pattern = ["KIND", ...].')
        if not table.count and len(tables) > 1:
            remedy = 'Write count = "an expression over config".'
            raise LoomError("several groups of layers, and one does not say how often it repeats", str(origin), remedy)
        for kind in table.pattern:
            if kind not in kinds:
                where = str(file.origin(*keys, "layers", number, "pattern"))
                raise LoomError(f"unknown kind of layer {kind!r}", where, nearest(kind, kinds))
        if table.name in [group.name for group in groups]:
            raise LoomError("two groups of layers have one name", str(origin), "Give each a `name`.")
        if table.count and not is_count(table.count):
            where = str(file.origin(*keys, "layers", number, "count"))
            remedy = "Write whole numbers and sizes such as config.layers, with + - * // % between them."
            raise LoomError(f"{short(table.count)!r} is not a number of layers", where, remedy)
        every = ALL if len(table.pattern) == 1 else f"{ALL} // {len(table.pattern)}"
        groups.append(Group(table.name, table.pattern, table.count or every, origin))
    names = [kind for group in groups for kind in group.pattern]
    for name, other in kinds.items():
        if name not in names and not other.where:
            remedy = "Put it into a pattern, give it a `where`, or remove it."
            raise LoomError(f"no layer is of the kind {name!r}", str(other.origin), remedy)
    return tuple(groups)


def find_groups(kinds: list[str]) -> tuple[Group, ...]:
    """Returns the shortest description of the kinds of all layers: some at the start, a period, some at the end."""
    changes = [0, *accumulate(int(one != other) for one, other in pairwise(kinds))]
    runs_before = [0, *(1 + change for change in changes)]  # of kinds[:n]
    runs_after = [*(changes[-1] - change + 1 for change in changes), 0]  # of kinds[n:]
    best: tuple[int, int, int] = (len(kinds), 0, len(kinds))  # start, period, end of the periods
    cost = (runs_before[-1] + 1, 0)  # what is written out; then the more of it repeats, the better
    for start in range(len(kinds)):
        if runs_before[start] >= cost[0]:
            break  # no later start can do better
        if start and changes[start - 1] == changes[min(start + 12, len(kinds) - 1)]:
            continue  # nor can one inside a long run
        for period in range(1, min(len(kinds) - start, 12) + 1):
            unit, end = kinds[start : start + period], start
            while kinds[end : end + period] == unit:
                end += period
            here = (runs_before[start] + period + runs_after[end], start - end)
            if end - start >= min(2 * period, len(kinds)) and here < cost:
                best, cost = (start, period, end), here
    start, period, end = best
    groups = [Group(f"first_{i}", (kind,), str(n)) for i, (kind, n) in enumerate(_runs(kinds[:start]))]
    last = [Group(f"last_{i}", (kind,), str(n)) for i, (kind, n) in enumerate(_runs(kinds[end:]))]
    if period:
        outside = start + len(kinds) - end
        rest = f"{ALL} - {outside}" if outside else ALL
        count = rest if period == 1 else f"{factor(rest)} // {period}"
        groups.append(Group("", tuple(kinds[start : start + period]), count))
    return (*groups, *last)


def _runs(kinds: list[str]) -> list[tuple[str, int]]:
    """Counts runs: `a a b` are `(a, 2), (b, 1)`."""
    return [(kind, len(list(members))) for kind, members in groupby(kinds)]
