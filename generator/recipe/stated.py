"""Writes the statements of an architecture about its checkpoints into the splices of fragments.

[hf.tensors]    # parameter -> its name in checkpoints, or its name and its layout there; layers.PARAMETER: of a layer
[hf.names]      # a setting of config.json as fragments call it -> as this family calls it
[hf.settings]   # setting -> the value that config.json must have
[hf.defaults]   # setting -> its value if config.json leaves it out; {} takes back that of a base
[hf.unread]     # setting -> its value, or null, unless a selected fragment reads it; and what to select for another one
[hf.export]     # setting -> its value in an exported config.json; {} is null, which TOML does not have

Fragments declare rows (rows.py). A row with a key of these tables gets the value of the architecture; a key without a
row becomes a splice of its own. Defaults stand together at `hf.defaults`, in place of a fragment's `hf.setdefault`; if
that computes its value, it stays, for null.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from generator.code.edits import Edits
from generator.code.literals import literal
from generator.code.traced import Origin, Traced
from generator.code.tree import TracedTree, called_name, position, statement_expression, walk
from generator.errors import LoomError, nearest, short
from generator.language.fragment import Fragment
from generator.language.parts import Splice
from generator.recipe.order import order_splices
from generator.recipe.recipe import Recipe
from generator.recipe.rows import Row, check_rows, check_tensor, read_rows
from generator.recipe.schema import UnreadTable
from generator.recipe.typed import TomlTable, check_value

Statements = dict[str, tuple[Any, Origin]]  # key -> value, with the line that states it
_WIDTH = 120  # columns of a line
_OWN_SPLICES = {  # table -> the point and the statement of a key without a row
    "settings": ("hf.structure", "yield {}, {}, {}"),
    "unread": ("hf.structure", "yield {}, {}, {}"),
    "export": ("hf.export", "hf[{}] = {}"),
}


def apply_statements(recipe: Recipe) -> Recipe:
    """Returns the recipe with the statements of the architecture and its bases written into its fragments' splices."""
    for splice in (s for f in recipe.fragments for s in f.splices if s.point.startswith("hf.")):
        check_rows(splice)
    recipe = order_splices(recipe)
    tables = [file.data.hf for file in recipe.lineage]
    hf = {name: _merge(tables, name) for name in ("tensors", "names", "defaults", *_OWN_SPLICES)}
    hf["defaults"] = {key: it for key, it in hf["defaults"].items() if it[0] != {}}
    _check_keys(hf, recipe)
    _check_values(hf)
    used: set[tuple[str, str]] = set()
    fragments = [
        replace(f, splices=tuple(_override(splice, hf, used) for splice in f.splices)) for f in recipe.fragments
    ]
    for row in _read_all_rows(recipe.fragments):
        if row.table == "tensors" and row.key in hf["tensors"] and ("tensors", row.key) not in used:
            value, origin = hf["tensors"][row.key]
            check_tensor(row, _as_tuple(value), str(origin))
    _check_collisions(hf, fragments, recipe.pattern.kind_fragments)
    if fragments:
        first = [
            *_make_defaults(hf, recipe.fragments, used),
            *(
                _make_splice("settings", (key, value, f"fragments for another {key}"), origin, fragments[0].name)
                for key, (value, origin) in hf["settings"].items()
                if ("settings", key) not in used
            ),
        ]
        fragments[0] = replace(fragments[0], splices=(*first, *fragments[0].splices))
    pairs = zip(fragments, _make_following(hf, fragments, recipe), strict=True)
    return replace(recipe, fragments=tuple(replace(f, splices=(*f.splices, *following)) for f, following in pairs))


def _merge(tables: Sequence[TomlTable], key: str) -> Statements:
    """Returns one table of the `[hf]` of an architecture and its bases, merged."""
    return {name: (value, table.origin(key, name)) for table in tables for name, value in getattr(table, key).items()}


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _override(splice: Splice, hf: dict[str, Statements], used: set[tuple[str, str]]) -> Splice:
    """Returns a splice with the values of the architecture in its rows; adds the tables and keys of these to `used`."""
    edits, end = Edits(source := TracedTree(splice.body)), (0, 0)
    for row in read_rows(splice.body.text) if splice.point.startswith("hf.") else ():
        # config.json and the tables use the family's names
        key = row.key if row.table in ("names", "tensors") else hf["names"].get(row.key, (row.key,))[0]
        if row.table == "tensors" and _layer_key(row) in hf["tensors"]:
            key = _layer_key(row)
        if (
            key not in hf.get(row.table, ()) or position(row.nodes[0]) < end
        ):  # or a value holds the row, and is replaced
            continue
        if row.table == "defaults":
            if splice.point == "hf.export" or not isinstance(row.nodes[0], ast.Constant):
                continue
            if statement := _find_setdefault(source, row.nodes[0]):
                edits.put(statement, [])
                continue
        value, origin = hf[row.table][key]
        values = _as_tuple(value)
        if row.table == "tensors":
            if ("{}" in values[0]) != ("{}" in row.values[0]):
                continue  # the parameter of another fragment, in each layer or in none
            check_tensor(row, values, str(origin))
        used.add((row.table, key))
        for node, part in zip(row.nodes, values, strict=False):
            edits.replace(node, literal(part, str(origin)), origin)
            end = node.end_lineno or 0, node.end_col_offset or 0
    return replace(splice, body=edits.made()) if edits else splice


def _layer_key(row: Row) -> str:
    """Returns the key of a layer's parameter when one outside the layers has its name too; '' for the other one."""
    return f"layers.{row.key}" if "{}" in row.values[0] else ""


def _find_setdefault(source: TracedTree, default: ast.expr) -> ast.stmt | None:
    """Returns the statement `hf.setdefault(KEY, default)`."""
    for statement in walk(source.module):
        call = statement_expression(statement)
        if isinstance(call, ast.Call) and called_name(call) == "hf.setdefault" and call.args[-1] is default:
            return statement  # type: ignore[return-value]
    return None


def _make_defaults(
    hf: dict[str, Statements], fragments: Sequence[Fragment], used: set[tuple[str, str]]
) -> Iterator[Splice]:
    """Yields splices with the defaults of settings that fragments read; each is a line with some of them."""
    rows = _read_all_rows(fragments)
    read = {hf["names"].get(name, (name,))[0] for row in rows for name in (row.key, *row.values)}
    read |= {*hf["unread"], *hf["settings"]}
    start, end, line = "    hf = {", "} | hf\n", list[Traced]()
    for key, (value, origin) in hf["defaults"].items():
        if key not in read or ("defaults", key) in used:
            continue
        item = Traced.insert(f"{literal(key, str(origin))}: {literal(value, str(origin))}", origin)
        if line and len(start + end + "".join(f"{part.text}, " for part in [*line, item])) > _WIDTH:
            yield _join_defaults(start, line, end, fragments[0].name)
            line = []
        line.append(item)
    if line:
        yield _join_defaults(start, line, end, fragments[0].name)


def _join_defaults(start: str, line: list[Traced], end: str, fragment: str) -> Splice:
    origin = line[0].origin_at(0)
    items = [item + Traced.insert(", ", item.origin_at(0)) for item in line[:-1]]
    body = Traced.join([Traced.insert(start, origin), *items, line[-1], Traced.insert(end, origin)])
    return Splice("hf.defaults", ("hf",), body, (), (), optional=False, fragment=fragment, origin=origin)


def _make_following(hf: dict[str, Statements], fragments: Sequence[Fragment], recipe: Recipe) -> list[list[Splice]]:
    """Returns for each fragment the splices after its own: `unread` and `export` follow the last one of their file."""
    read = {row.key for row in _read_all_rows(fragments) if row.table in ("sizes", "settings")}
    statements: list[tuple[str, tuple[object, ...], Origin]] = [
        *(
            ("unread", (key, table.value, table.select), origin)
            for key, (table, origin) in hf["unread"].items()
            if key not in read
        ),
        *(("export", (key, None if value == {} else value), origin) for key, (value, origin) in hf["export"].items()),
    ]
    selected = {file.path: file.data.fragments for file in recipe.lineage}
    following: list[list[Splice]] = [[] for _ in fragments]
    for table, words, origin in statements:
        last = max((n for n, f in enumerate(fragments) if f.name in selected[origin.path]), default=0)
        following[last].append(_make_splice(table, words, origin, fragments[last].name))
    return following


def _make_splice(table: str, words: Iterable[object], origin: Origin, fragment: str) -> Splice:
    point, statement = _OWN_SPLICES[table]
    body = Traced.insert(f"    {statement}\n".format(*(literal(word, str(origin)) for word in words)), origin)
    reads = ("hf",) if "hf" in statement else ()
    return Splice(point, reads, body, (), (), optional=False, fragment=fragment, origin=origin)


def _read_all_rows(fragments: Iterable[Fragment], replaced: bool = False) -> list[Row]:
    """Returns the rows of fragments.

    Args:
        replaced: includes those in a block that a splice replaces.
    """
    splices = [splice for f in fragments for splice in f.splices if splice.point.startswith("hf.")]
    points = set() if replaced else {splice.point for splice in splices}
    return [row for splice in splices for row in read_rows(splice.body.text) if points.isdisjoint(row.points)]


def _check_keys(hf: dict[str, Statements], recipe: Recipe) -> None:
    """Refuses parameters and settings that no fragment mentions, selected or left out."""
    for table, kind in (("tensors", "parameter"), ("names", "setting of config.json")):
        selected = {row.key for row in _read_all_rows(recipe.fragments, replaced=True) if row.table == table}
        left_out = {row.key for row in _read_all_rows(recipe.left_out, replaced=True) if row.table == table}
        if table == "tensors":
            rows = _read_all_rows([*recipe.fragments, *recipe.left_out], replaced=True)
            left_out |= {_layer_key(row) for row in rows if row.table == table}
        for key in sorted(hf[table].keys() - selected - left_out):
            message = f"no selected fragment mentions a {kind} {key!r}"
            raise LoomError(message, str(hf[table][key][1]), nearest(key, selected))


def _check_values(hf: dict[str, Statements]) -> None:
    """Refuses names and values that a config.json cannot have."""
    for key, (name, origin) in hf["names"].items():
        if not name.isprintable() or not name.strip() == name != "":
            raise LoomError(f"{name!r} cannot be the name of {key}", str(origin), "Write what config.json calls it.")
    if "model_type" in hf["settings"]:
        remedy = "Write it above the tables: model_type = ..."
        raise LoomError("model_type is not one of the settings", str(hf["settings"]["model_type"][1]), remedy)
    for key, (value, origin) in (item for table in ("defaults", *_OWN_SPLICES) for item in hf[table].items()):
        value = value.value if isinstance(value, UnreadTable) else value
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            message = f"{key} is {short(str(value))}, which a config.json cannot contain"
            raise LoomError(message, str(origin), "Give a text, a finite number, true or false.") from None


def _check_collisions(hf: dict[str, Statements], fragments: Sequence[Fragment], of_kinds: Collection[str]) -> None:
    """Refuses two sizes in one setting, two parameters in one tensor unless they are joined, and unfit defaults.

    Args:
        of_kinds: names of fragments that only some kinds of layer have: their tensors may be called as those of others.
    """
    sizes = [(row.key, row.values[0]) for row in _read_all_rows(fragments) if row.table == "sizes"]
    joined = any(splice.point == "hf.view" for f in fragments for splice in f.splices)
    rows = [] if joined else _read_all_rows([f for f in fragments if f.name not in of_kinds])
    tensors = [(row.values[0], row.key) for row in rows if row.table == "tensors"]
    for table, pairs in (("names", sizes), ("tensors", tensors)):
        for key, (value, origin) in hf[table].items():
            name = _as_tuple(value)[0]
            owners = sorted({owner for other, owner in pairs if other == name})
            if len(owners) > 1:
                message = f"{name} would be {' and '.join(owners)}"
                raise LoomError(message, str(origin), f"Give {key} a name of its own.")
    fields = {member.name: member for f in fragments for member in f.fields}
    for setting, field in sizes:
        if setting in hf["defaults"] and field in fields:
            value, origin = hf["defaults"][setting]
            check_value(fields[field], value, str(origin))
