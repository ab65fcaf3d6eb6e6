"""Reads the rows of a splice: its declarations about checkpoints, as data with their places in the text.

yield "norm.scale", "model.norm.weight", "d -> d"    # tensors: parameter, name in checkpoints, layout there
yield "hidden_size", "width"                         # sizes: setting of config.json, field of Config
yield "mlp_bias", False, "biases"                    # settings: setting, its value, what to select for another
hf.setdefault("mlp_bias", False)                     # defaults: setting, its value if config.json leaves it out
hf["mlp_bias"]                                       # names: any other string, which may be a setting
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import NamedTuple

from generator.code.caching import cached
from generator.code.tree import TracedTree, called_name, children, parse, position
from generator.errors import LoomError
from generator.language.parts import Splice

_EXAMPLE = "model.layers.{}.self_attn.q_proj.weight", "d n h -> (n h) d"


class Row(NamedTuple):
    """A row of a splice.

    Attributes:
        table: "tensors", "sizes", "settings", "defaults" or "names".
        values: the text of each value after the key, '' if it is not a plain string; of a name, the key itself.
        nodes: the values.
        points: those whose blocks hold the row; a splice at one of them replaces it.
    """

    table: str
    key: str
    values: tuple[str, ...]
    nodes: tuple[ast.expr, ...]
    points: tuple[str, ...]


@cached
def read_rows(text: str) -> tuple[Row, ...]:
    """Returns the rows of a splice's body, ordered by where their values begin; a value may hold further rows."""
    rows = list[Row]()
    _collect_rows(parse(text).module, (), rows)
    return tuple(sorted(rows, key=lambda row: position(row.nodes[0])))


def _collect_rows(node: ast.AST, points: tuple[str, ...], rows: list[Row]) -> None:
    def add(table: str, key: str, values: Sequence[ast.expr]) -> None:
        rows.append(Row(table, key, tuple(map(_string_value, values)), tuple(values), points))

    below: list[ast.AST] = children(node)
    match node:
        case ast.With(items=[ast.withitem(ast.Call(ast.Name("point"), [ast.Constant(str(point)), *_]))]):
            points = (*points, point)
        case ast.Yield(ast.Tuple([ast.Constant(str(key)) as name, *values])) if values:
            table = "sizes" if len(values) == 1 else "tensors" if "->" in _string_value(values[-1]) else "settings"
            add(table, key, values[:1] if table == "settings" else values)
            below = [] if table == "tensors" else [name, *(value for value in values if not _string_value(value))]
        case ast.Call(args=[ast.Constant(str(key)), default]) if called_name(node) in ("hf.get", "hf.setdefault"):
            add("defaults", key, [default])
        case ast.JoinedStr(parts):
            below = [part for part in parts if not _string_value(part)]
        case ast.Constant(str(text)):
            add("names", text, [node])
    for child in below:
        _collect_rows(child, points, rows)


def _string_value(node: ast.expr) -> str:
    """Returns the value of a plain string, else ''."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def check_tensor(row: Row, stated: Sequence[str], where: str) -> None:
    """Refuses a bad name of a tensor, and a layout that cannot give the parameter as a view of the tensor.

    Args:
        row: of the parameter, with its own name and layout.
        stated: the name that replaces its own, and perhaps the layout.
    """
    name, layout = (*stated, *row.values[len(stated) :])
    like = _EXAMPLE if stated is row.values else row.values
    if not re.fullmatch(r"([^\s{}]|\{\})+", name) or not name.isprintable():
        remedy = f"Write one like {like[0]}, where {{}} stands for a number."
        raise LoomError(f"{name!r} cannot be the name of a tensor", where, remedy)
    if not _is_layout(layout):
        remedy = f"Write one like {like[1]}: the same names on both sides, in brackets only neighbours."
        raise LoomError(f"{layout!r} is not a layout of a tensor", where, remedy)
    numbers, own_numbers = name.count("{}"), row.values[0].count("{}")
    axes, own_axes = len(_axes(layout)), len(_axes(row.values[1]))
    if row.values[0] and (numbers + axes != own_numbers + own_axes or bool(numbers) != bool(own_numbers)):
        remedy = f"The fragment has {row.values[0]} and {row.values[1]!r}: write as many {{}} and axes."
        raise LoomError(f"{name} has {numbers} {{}} and {layout!r} {axes} axes", where, remedy)


def check_rows(splice: Splice) -> None:
    """Refuses a tensor's row in a splice of a fragment that no checkpoint could have."""
    per_layer = {"hf.tensors": False, "hf.layer_tensors": True}.get(splice.point)
    for row in read_rows(splice.body.text):
        where = TracedTree(splice.body).where(row.nodes[0])
        if row.table == "tensors" and all(row.values):
            check_tensor(row, row.values, where)
        elif row.table in ("sizes", "settings") and per_layer is not None:
            remedy = 'Write yield "PARAMETER", "NAME IN CHECKPOINTS", "d v -> v d".'
            raise LoomError(f"{row.key} has no layout in checkpoints", where, remedy)
        if row.table == "tensors" and row.values[0] and per_layer and "{}" not in row.values[0]:
            remedy = "Write {} where the number of the layer is; what is of no layer belongs to hf.tensors."
            raise LoomError(f"{row.values[0]} is the same tensor in each layer", where, remedy)


def _axes(layout: str) -> list[str]:
    return layout.partition("->")[0].split()


def _is_layout(layout: str) -> bool:
    """Returns whether einops takes a layout, and gives a view: a tensor loaded into a copy would be lost."""
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
