"""Finds code that one fragment restates from another."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import NamedTuple

from generator.measure.count import python_code_lines

SHORTEST = 4


class Clone(NamedTuple):
    """The same lines of code in two fragments; line numbers count from 1.

    Attributes:
        lines: how many lines of code.
        first, second: `path:line` of both beginnings; `second` is the one counted as restated.
    """

    lines: int
    first: str
    second: str


def clones(fragments: dict[str, str]) -> tuple[int, list[Clone]]:
    """Runs of four or more lines of code that stand in two fragments.

    Lines are compared without white space and comments. Blank lines, docstrings and imports are left out: a module
    must import what it uses, and the woven package has each import once.

    Args:
        fragments: path -> text.

    Returns:
        The number of lines of code that stand in an earlier fragment too (by path), and the runs, longest first.
    """
    codes = {path: _normalised(path, text) for path, text in sorted(fragments.items())}
    windows: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for path, code in codes.items():
        for start in range(len(code) - SHORTEST + 1):
            windows[tuple(text for _, text in code[start : start + SHORTEST])].append((path, start))
    restated: dict[str, set[int]] = defaultdict(set)
    pairs: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for places in windows.values():
        for index, (path, start) in enumerate(places):
            for earlier, before in places[:index]:
                if earlier != path:
                    restated[path].update(range(start, start + SHORTEST))
                    pairs[earlier, path, before - start].append(start)
    found = []
    for (earlier, path, shift), starts in pairs.items():
        for first, last in _runs(sorted(starts)):
            origin = f"{earlier}:{codes[earlier][first + shift][0]}"
            found.append(Clone(last - first + SHORTEST, origin, f"{path}:{codes[path][first][0]}"))
    found.sort(key=lambda clone: (-clone.lines, clone.first, clone.second))
    return sum(map(len, restated.values())), found


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return [(first, last) for first, last in runs]


def _normalised(path: str, text: str) -> list[tuple[int, str]]:
    """Line number and bare text of each line of code."""
    code = set(python_code_lines(path, text))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            code -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = text.splitlines()
    return [(number, "".join(_bare(lines[number - 1]).split())) for number in sorted(code)]


def _bare(line: str) -> str:
    """A line without the comment at its end; a `#` after a quote may be in a string, so there it stays."""
    head, mark, _ = line.partition("#")
    return line if mark and ("'" in head or '"' in head) else head
