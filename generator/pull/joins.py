"""Where the join points of a package stand in its files: a fragment that marks each of them is woven and read."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from generator.code.hunks import hunks
from generator.language.fragment import Fragment
from generator.package.package import Package
from generator.pull.sources import indent

_MARK = re.compile(r"\s*assert \"(begin|end) (.+)\"$")


class Join(NamedTuple):
    """A join point.

    Attributes:
        shown: names that a splice may read and rebind.
        named: keyword -> the expression that it stands for.
        host: the fragment that has the point.
    """

    name: str
    shown: tuple[str, ...]
    named: dict[str, str]
    is_block: bool
    host: str


@dataclass(frozen=True)
class Place:
    """A join point in a file of a package.

    Attributes:
        start, stop: the lines of its statements, from 0; one gap between two lines where it has none.
        indent: of its statements.
    """

    join: Join
    start: int
    stop: int
    indent: int


@dataclass
class Marked:
    """A file as it is woven where every point has a splice.

    Attributes:
        lines: without the marks; a `return f(y)` may have become `x = f(y)` and `return x`.
        sources: of each line, the fragments that it came from, with their lines.
        rows: (first line in the package, last, first here, last) of each stretch that is not the same.
    """

    lines: list[str] = field(default_factory=list)
    sources: list[list[tuple[str, int]]] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    rows: list[tuple[int, int, int, int]] = field(default_factory=list)

    def row(self, line: int) -> int:
        """The line here that a line of the package became; it must not be inside a stretch that is not the same."""
        shift = [here_stop - stop for _, stop, _, here_stop in self.rows if stop <= line]
        return line + (shift[-1] if shift else 0)


def find_joins(fragments: Iterable[Fragment], texts: dict[str, str]) -> dict[str, Join]:
    """The join points of fragments by name, those in their splices too."""
    found: dict[str, Join] = {}
    for fragment in fragments:
        if "point(" not in texts[fragment.path]:
            continue
        tree = ast.parse(texts[fragment.path])
        blocks = {id(node.items[0].context_expr): node for node in ast.walk(tree) if isinstance(node, ast.With)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) != "point" or not node.args:
                continue
            block = blocks.get(id(node))
            shown = [argument.id for argument in node.args[1:] if isinstance(argument, ast.Name)]
            bound = _bound(block) if block else []
            named = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg}
            name = ast.literal_eval(node.args[0])
            every = tuple(dict.fromkeys([*shown, *bound]))
            found[name] = Join(name, every, named, block is not None, fragment.name)
    return found


def _bound(block: ast.With) -> list[str]:
    """The names that statements bind, in the order in which they stand."""
    names = [node for node in ast.walk(block) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return [node.id for node in sorted(names, key=lambda node: (node.lineno, node.col_offset))]


def marking(joins: Iterable[Join]) -> str:
    """The text of a fragment that marks points."""
    parts = ['"""Marks."""\n\nfrom generator.language import proceed, splice\n']
    for join in joins:
        block = f'    proceed()\n    assert "end {join.name}"\n' if join.is_block else ""
        parts.append(f'@splice("{join.name}", optional=True)\ndef _():\n    assert "begin {join.name}"\n{block}')
    return "\n\n".join(parts)


def read_marks(package: Package, made: Package, joins: dict[str, Join]) -> Callable[[str], Marked]:
    """What marks say of each file.

    Args:
        package: without marks.
        made: with them.
    """
    known: dict[str, Marked] = {}

    def read(path: str) -> Marked:
        if path not in known:
            known[path] = _read(package.files[path], made, path, joins)
        return known[path]

    return read


def _read(before: str, made: Package, path: str, joins: dict[str, Join]) -> Marked:
    marked, opened = Marked(), dict[str, tuple[int, int]]()
    segments = made.origins[path]
    for number, line in enumerate(made.files[path].split("\n")):
        mark = _MARK.match(line)
        if mark is None or mark[2] not in joins:
            marked.lines.append(line)
            found = segments[number] if number < len(segments) else []
            marked.sources.append([(o.path, o.line) for _, o in found if o.path.startswith("fragments/")])
            continue
        join, gap = joins[mark[2]], len(marked.lines)
        if mark[1] == "begin" and join.is_block:
            opened[join.name] = gap, indent(line)
        elif mark[1] == "begin":
            marked.places.append(Place(join, gap, gap, indent(line)))
        elif join.name in opened:
            start, width = opened.pop(join.name)
            marked.places.append(Place(join, start, gap, width))
    for old, new in hunks(before.split("\n"), marked.lines):
        marked.rows.append((old.start, old.stop, new.start, new.stop))
    return marked


def widened(marked: Marked, start: int, stop: int) -> tuple[int, int]:
    """Lines of the package with all of each stretch that they touch and that marks have changed."""
    starts = [row[0] for row in marked.rows]
    for first, last, _, _ in marked.rows[max(bisect_left(starts, start) - 1, 0) :]:
        if first < stop and start < last:
            start, stop = min(start, first), max(stop, last)
    return start, stop
