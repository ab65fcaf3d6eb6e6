"""Writes what an architecture states of its checkpoints, and of the order of splices, into the splices of fragments.

[hf.tensors]    # parameter -> its name in checkpoints, or its name and its layout there
[hf.names]      # what fragments call a setting of config.json -> what this family calls it
[hf.settings]   # what config.json says, and must say
[hf.defaults]   # what a setting means that config.json leaves out
[hf.unread]     # the value that a setting must have, or null, unless a selected fragment reads it; what to select then
[hf.export]     # what an exported config.json says besides; {} is null, which TOML does not have
[order]         # of splices at a point, whatever their fragments declare
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from generator.code.literals import literal
from generator.code.traced import Edit, Origin, Traced
from generator.code.tree import TracedTree, called_name, walk
from generator.errors import LoomError, nearest, short
from generator.language.fragment import Fragment
from generator.language.parts import Splice
from generator.recipe.recipe import Recipe
from generator.recipe.schema import UnreadTable
from generator.recipe.typed import check_value

Statements = dict[str, tuple[Any, Origin]]  # key -> value, with the line that states it
_SETTING = r'(?:hf\[|hf\.\w+\(|yield )"(\w[\w.]*)"(?!, "[^"]*", "[^"]*->)'
_TENSOR = r'yield "([^"]+)", "[^"]*", "'
_READING = "hf.get", "hf.setdefault"
_TABLES = "names", "tensors", "settings", "defaults"  # names first: settings go by what config.json calls them
_OF_VALUES = "settings", "defaults", "unread", "export"


def state(recipe: Recipe) -> Recipe:
    """Returns the recipe with the splices of its fragments as the architecture and its bases state them."""
    order = _merged(recipe, "order")
    hf = {name: _merged(recipe, "hf", name) for name in {*_TABLES, *_OF_VALUES}}
    _check_order(order, recipe)
    _check_keys(hf, recipe)
    _check_values(hf)
    writer = _Writer(hf)
    made = [
        replace(f, splices=tuple(writer.write(_ordered(splice, order)) for splice in f.splices))
        for f in recipe.fragments
    ]
    for key, error in writer.refused.items():
        if ("tensors", key) not in writer.used:
            raise error
    _check_apart(hf, made)
    if made:  # what no fragment mentions comes before what fragments say
        made[0] = replace(made[0], splices=(*_additions(hf, writer.used, made[0].name), *made[0].splices))
    beside = _beside(hf, made, recipe)
    return replace(recipe, fragments=tuple(replace(f, splices=(*f.splices, *beside[f.name])) for f in made))


def _merged(recipe: Recipe, *keys: str) -> Statements:
    """Merges a table of an architecture with those of its bases."""
    merged: Statements = {}
    for file in recipe.lineage:
        table: Any = file.data
        for key in keys:
            table = getattr(table, key)
        merged |= {name: (value, file.origin(*keys, name)) for name, value in table.items()}
    return merged


@dataclass
class _Writer:
    """Writes the tables of `[hf]` into splices.

    Attributes:
        used: the tables and keys that had a place in some splice.
        refused: parameter -> the error of a name that only another parameter of it could have: of a layer, or of none.
    """

    hf: dict[str, Statements]
    used: set[tuple[str, str]] = field(default_factory=set)
    refused: dict[str, LoomError] = field(default_factory=dict)

    def write(self, splice: Splice) -> Splice:
        for table in _TABLES:
            if self.hf[table] and splice.point.startswith("hf."):
                if edits := self._edits(table, TracedTree(splice.body)):
                    splice = replace(splice, body=splice.body.edited(edits))
        return splice

    def _edits(self, table: str, source: TracedTree) -> list[Edit]:
        edits, end = list[Edit](), 0
        for key, places in _places(table, source):
            if key not in self.hf[table] or source.span(places[0])[0] < end:  # the default of a default went with it
                continue
            value, origin = self.hf[table][key]
            parts = value if isinstance(value, tuple) else (value,)
            if table == "tensors" and (error := _tensor_error(parts, [_text(place) for place in places], str(origin))):
                if ("{}" in parts[0]) == ("{}" in _text(places[0])):
                    raise error
                self.refused[key] = error
                continue
            self.used.add((table, key))
            for place, part in zip(places, parts, strict=False):
                start, end = source.span(place)
                edits.append(Edit(start, end, Traced.insert(literal(part, str(origin)), origin)))
        return edits


def _places(table: str, source: TracedTree) -> Iterator[tuple[str, list[ast.expr]]]:
    """Yields, of statements of fragments, each key that a table may have, and the expressions that it stands for."""
    in_strings = {part for node in walk(source.module) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in walk(source.module):
        match node:
            case ast.Constant(str(text)) if table == "names" and node not in in_strings:
                yield text, [node]
            case ast.Call(args=[key, *places]) if table == "defaults" and called_name(node) in _READING and places:
                yield _text(key), places
            case ast.Yield(ast.Tuple([key, *places])) if table in ("tensors", "settings") and len(places) == 2:
                yield _text(key), places[: 1 if table == "settings" else 2]  # of a size it is one


def _additions(hf: dict[str, Statements], used: set[tuple[str, str]], fragment: str) -> Iterator[Splice]:
    """Yields splices of the defaults and settings that no fragment mentions."""
    for table, point, reads, line in (
        ("defaults", "hf.complete", ("hf",), "    hf.setdefault({}, {})\n"),
        ("settings", "hf.structure", (), "    yield {}, {}, {}\n"),
    ):
        for key, (value, origin) in hf[table].items():
            if (table, key) not in used:
                yield _splice(point, reads, line, (key, value, f"fragments for another {key}"), origin, fragment)


def _beside(hf: dict[str, Statements], made: Sequence[Fragment], recipe: Recipe) -> dict[str, list[Splice]]:
    """Returns splices of `unread` and `export` by the fragment that they follow: the last that their file selects."""
    standing = _standing_at(made, "hf.sizes") + _standing_at(made, "hf.structure")
    read = set(re.findall(r"""yield ["'](.+?)["'], """, standing))
    lines: list[tuple[Origin, str, tuple[str, ...], str, tuple[object, ...]]] = [
        (origin, "hf.structure", (), "    yield {}, {}, {}\n", (key, table.value, table.select))
        for key, (table, origin) in hf["unread"].items()
        if key not in read
    ]
    for key, (value, origin) in hf["export"].items():
        lines.append((origin, "hf.export", ("hf",), "    hf[{}] = {}\n", (key, None if value == {} else value)))
    selected = {file.path: file.data.fragments for file in recipe.lineage}
    beside: dict[str, list[Splice]] = {f.name: [] for f in made}
    for origin, point, reads, line, words in lines:
        for name in [f.name for f in made if f is made[0] or f.name in selected[origin.path]][-1:]:
            beside[name].append(_splice(point, reads, line, words, origin, name))
    return beside


def _splice(
    point: str, reads: tuple[str, ...], line: str, words: Iterable[object], origin: Origin, fragment: str
) -> Splice:
    body = Traced.insert(line.format(*(literal(word, str(origin)) for word in words)), origin)
    return Splice(point, reads, body, (), (), optional=False, fragment=fragment, origin=origin)


def _text(node: ast.expr) -> str:
    """Returns what a plain string says, or nothing."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _check_keys(hf: dict[str, Statements], recipe: Recipe) -> None:
    """Refuses parameters and settings that no fragment mentions, selected or left out."""
    for table, kind, pattern, suggested in (
        ("tensors", "parameter", _TENSOR, _TENSOR),
        ("names", "setting of config.json", r'"([\w.]+)"', _SETTING),
    ):
        known = _mentioned((*recipe.fragments, *recipe.left_out), pattern) if hf[table] else set()
        for key in sorted(hf[table].keys() - known):
            message = f"no selected fragment speaks of a {kind} {key!r}"
            raise LoomError(message, str(hf[table][key][1]), nearest(key, _mentioned(recipe.fragments, suggested)))


def _check_values(hf: dict[str, Statements]) -> None:
    """Refuses names and values that a config.json cannot have."""
    for key, (name, origin) in hf["names"].items():
        if not name.isprintable() or not name.strip() == name != "":
            raise LoomError(f"{name!r} cannot be the name of {key}", str(origin), "Write what config.json calls it.")
    if "model_type" in hf["settings"]:
        remedy = "Write it above the tables: model_type = ..."
        raise LoomError("model_type is no setting among others", str(hf["settings"]["model_type"][1]), remedy)
    for key, (value, origin) in (it for table in _OF_VALUES for it in hf[table].items()):
        value = value.value if isinstance(value, UnreadTable) else value
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            message = f"{key} is {short(str(value))}, which no config.json can say"
            raise LoomError(message, str(origin), "Give a text, a finite number, true or false.") from None


def _check_apart(hf: dict[str, Statements], made: Sequence[Fragment]) -> None:
    """Refuses two sizes in one setting, two parameters in one tensor unless they are joined, and unfit defaults."""
    text = _standing_at(made, "hf.")
    sizes = re.findall(r"""yield ["'](.+)["'], "(\w+)"\n""", text)
    tensors = [pair[::-1] for pair in re.findall(r"""yield "(.+)", ["'](.+)["'], ["'].*->""", text)]
    joined = any(splice.point == "hf.view" for f in made for splice in f.splices)
    for table, pairs in (("names", sizes), ("tensors", [] if joined else tensors)):
        for key, (value, origin) in hf[table].items():
            name = value if isinstance(value, str) else value[0]
            of = sorted({it for found, it in pairs if found == name})
            if len(of) > 1:
                message = f"{name} would be {' and '.join(of)}"
                raise LoomError(message, str(origin), f"Give {key} a name of its own.")
    fields = {member.name: member for f in made for member in f.fields}
    for setting, member in sizes:
        if setting in hf["defaults"] and member in fields:
            value, origin = hf["defaults"][setting]
            check_value(fields[member], value, str(origin))


def _mentioned(fragments: Iterable[Fragment], pattern: str) -> set[str]:
    """Returns what matches a pattern in splices for checkpoints."""
    splices = (splice for f in fragments for splice in f.splices if splice.point.startswith("hf."))
    return {name for splice in splices for name in re.findall(pattern, splice.body.text)}


def _standing_at(made: Iterable[Fragment], start: str) -> str:
    """Returns the statements of splices at points that begin so, except those that another splice replaces."""
    splices = [splice for f in made for splice in f.splices if splice.point.startswith("hf.")]
    points = {splice.point for splice in splices}
    return "".join(_standing(splice.body.text, points) for splice in splices if splice.point.startswith(start))


def _standing(text: str, points: Collection[str]) -> str:
    held = r'( *)with point\("([\w.]+)".*\):\n((?:\1 .*\n)+)'
    return re.sub(held, lambda block: "" if block[2] in points else _standing(block[3], points), text)


def _ordered(splice: Splice, order: Statements) -> Splice:
    """Returns a splice that comes after those which its architecture names before it."""
    names = order[splice.point][0] if splice.point in order else ()
    if splice.fragment not in names:
        return splice
    others = {name for full in names for name in (full, full.split("/")[-1])}
    before = tuple(name for name in splice.before if name not in others)
    after = tuple(name for name in splice.after if name not in others)
    return replace(splice, before=before, after=after + names[: names.index(splice.fragment)])


def _check_order(order: Statements, recipe: Recipe) -> None:
    """Refuses an order of fragments that have no splice there, unless they are left out."""
    gone = {fragment.name for fragment in recipe.left_out}
    for point, (names, origin) in order.items():
        if len({*names}) < max(len(names), 2):
            message = f"the order at {point!r} is not one of two fragments or more, each named once"
            raise LoomError(message, str(origin), "Name those that rebind the same, in the order that they have.")
        there = {f.name for f in recipe.fragments if any(splice.point == point for splice in f.splices)}
        for name in names:
            if name not in there | gone:
                raise LoomError(f"{name} has no splice for the point {point!r}", str(origin), nearest(name, there))


def _tensor_error(stated: Sequence[str], own: Sequence[str], where: str) -> LoomError | None:
    """Returns the error for a bad tensor name, or for a layout that cannot give the parameter as a view of the tensor.

    Args:
        stated: the name, and perhaps the layout.
        own: name and layout as the fragment has them.
    """
    name, layout = (*stated, *own[len(stated) :])
    if not re.fullmatch(r"([^\s{}]|\{\})+", name) or not name.isprintable():
        remedy = f"Write one like {own[0]}, where {{}} stands for a number."
        return LoomError(f"{name!r} cannot be the name of a tensor", where, remedy)
    if not _is_layout(layout):
        remedy = f"Write one like {own[1]}: the same names on both sides, in brackets only such as are neighbours."
        return LoomError(f"{layout!r} is no layout of a tensor", where, remedy)
    numbers, axes, has = name.count("{}"), len(_axes(layout)), own[0].count("{}")
    if own[0] and (numbers + axes != has + len(_axes(own[1])) or bool(numbers) != bool(has)):
        message = f"{name} has {numbers} {{}} and {layout!r} {axes} axes"
        return LoomError(message, where, f"The fragment has {own[0]} and {own[1]!r}: write as many {{}} and axes.")
    return None


def _axes(layout: str) -> list[str]:
    return layout.partition("->")[0].split()


def _is_layout(layout: str) -> bool:
    """Whether einops takes it, and gives a view: into a copy, what a checkpoint has would be lost."""
    axes, right = _axes(layout), layout.partition("->")[2]
    words = re.findall(r"\([^()]*\)|\w+", right)
    groups = [word.strip("()").split() for word in words]
    names = [name for group in groups for name in group if name != "1"]
    return (
        "".join(words).replace(" ", "") == right.replace(" ", "")
        and all(name.isidentifier() and name.strip("_") == name for name in axes)
        and 0 < len(axes) == len({*axes})
        and sorted(names) == sorted(axes)
        and all(f" {' '.join(group)} " in f" {' '.join(axes)} " for group in groups if len(group) > 1)
    )
