"""Draws edits of packages of the kinds that people make: the file stays valid, formatted, with all names bound."""

from __future__ import annotations

import ast
import json
import random
import re
import subprocess
from functools import lru_cache
from typing import NamedTuple

from ruff import find_ruff_bin

from generator.package.package import Package

FORMAT = ("format", "--isolated", "--no-cache", "--line-length=120", "--target-version=py311", "-")
CHECK = ("check", "--isolated", "--no-cache", "--target-version=py311", "-")
OTHER = {"+": "-", "-": "+", "*": "/", "<": "<=", ">": ">=", "==": "!=", "and": "or", "or": "and", "True": "False"}


class RandomEdit(NamedTuple):
    """An edit of one file: its kind, and the edited text."""

    kind: str
    path: str
    text: str


def ruff(text: str, *options: str) -> str:
    return subprocess.run([find_ruff_bin(), *options], input=text.encode(), capture_output=True).stdout.decode()


@lru_cache(maxsize=512)
def lint_errors(text: str) -> frozenset[str]:
    found = ruff(text, *CHECK, "--select=F401,F811,F821,F823", "--output-format=json")
    return frozenset(f"{entry['code']} {entry['message']}" for entry in json.loads(found or '["?"]'))


def fragment_rows(package: Package, path: str) -> list[int]:
    """Returns the rows below the imports of a file that come from a fragment."""
    lines, origins = package.files[path].split("\n"), package.origins[path]
    nodes = ast.parse(package.files[path]).body
    head = max((node.end_lineno for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)), default=len(lines))
    rows = range(head, len(origins))
    return [row for row in rows if lines[row].strip() and origins[row][0][1].path.startswith("fragments/")]


def change_line(line: str, names: list[str], draw: random.Random) -> tuple[str, str] | None:
    """Returns the kind of an edit and the edited line; None if the drawn kind does not apply to the line."""
    code, mark, comment = line.partition("  # ")
    kind = draw.choice(["number", "name", "operator", "comment", "word", "wrap", "argument"])
    if kind == "comment":
        if mark:
            return kind, f"{code}{mark}{comment} and more"
        return kind, f"{line} More." if line.strip().startswith(("#", '"')) else f"{line}  # a comment"
    patterns = {
        "number": r"(?<![\w.\"'-])\d+(?![\w.\"'])",
        "name": r"(?<![\w.\"'])[a-z_]\w+(?![\w(=\"'])",
        "operator": r" (?:[-+*<>]|==|and|or) |\bTrue\b",
        "word": r"(?<=[a-z] )[a-z]{4,}(?= [a-z])",
        "wrap": r"(?<== )[a-z_][\w.]*(?:\([^()]*\))?$",
        "argument": r"(?<=[\w\])]), (?=[\w\[(])",
    }
    matches = list(re.finditer(patterns[kind], code))
    if not matches:
        return None
    match = draw.choice(matches)
    old = match[0]
    new = {
        "number": lambda: str(int(old.replace("_", "")) + draw.randint(1, 9)),
        "name": lambda: draw.choice(names or [old]),
        "operator": lambda: old.replace(old.strip(), OTHER[old.strip()]),
        "word": lambda: draw.choice(["other", "plain", "changed"]),
        "wrap": lambda: f"tuple({old})",
        "argument": lambda: f", {draw.choice(names or ['None'])}, ",
    }[kind]()
    return kind, f"{code[: match.start()]}{new}{code[match.end() :]}{mark}{comment}"


def names_at(tree: ast.Module, row: int) -> list[str]:
    """Returns the parameters of the function around a row, and the variables that are bound above it."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    inside = [node for node in functions if node.lineno <= row + 1 <= (node.end_lineno or 0)]
    if not inside:
        return []
    function = max(inside, key=lambda node: node.lineno)
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.lineno < row + 1]
    stored = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return sorted(stored | {argument.arg for argument in function.args.args})


def line_edit(package: Package, draw: random.Random) -> RandomEdit:
    """Draws a change of one line."""
    while True:
        path = draw.choice(sorted(package.origins))
        if not (rows := fragment_rows(package, path)):
            continue
        row, text = draw.choice(rows), package.files[path]
        lines = text.split("\n")
        kind, line = change_line(lines[row], names_at(ast.parse(text), row), draw) or ("", lines[row])
        if line != lines[row] and (after := tidy(text, "\n".join([*lines[:row], line, *lines[row + 1 :]]))):
            return RandomEdit(kind, path, after)


INSERTED = [
    ["assert {0} is not None"],
    ['print("here", {0})'],
    ["if {0} is None:", '    raise ValueError("no {0}")'],
    ["extra = ({0}, 3)", "del extra"],
    ["# a comment of its own"],
]


def statement_edit(package: Package, draw: random.Random) -> RandomEdit:
    """Draws the insertion or deletion of a statement in a function."""
    while True:
        path = draw.choice(sorted(package.origins))
        text = package.files[path]
        lines, rows, tree = text.split("\n"), set(fragment_rows(package, path)), ast.parse(text)
        nodes = [node for node in ast.walk(tree) if not isinstance(node, ast.Module | ast.ClassDef)]
        blocks = [getattr(node, field, None) for node in nodes for field in ("body", "orelse")]
        pairs = [(statement, block) for block in blocks if isinstance(block, list) for statement in block]
        if not (pairs := [pair for pair in pairs if pair[0].lineno - 1 in rows]):
            continue
        statement, block = draw.choice(pairs)
        first, last = statement.lineno - 1, statement.end_lineno or 0
        if draw.random() < 0.5:
            kind, new = "delete", [*lines[:first], *lines[last:]]
            if len(block) < 2 or isinstance(statement, ast.Return):
                continue
        else:
            name, more = draw.choice(names_at(tree, first) or ["None"]), draw.choice(INSERTED)
            below = draw.random() < 0.5 and not isinstance(statement, ast.Return | ast.Raise | ast.Continue)
            place = last if below else first
            space = " " * statement.col_offset
            kind, new = "insert", [*lines[:place], *(space + line.format(name) for line in more), *lines[place:]]
        if after := tidy(text, "\n".join(new)):
            return RandomEdit(kind, path, after)


def tidy(before: str, after: str) -> str:
    """Returns an edited text, formatted and without unused imports; '' if it is invalid or reads unbound names."""
    after = ruff(ruff(after, *FORMAT), *CHECK, "--select=F401", "--fix", "--quiet")
    after = ruff(after, *FORMAT)
    return after if after and after != before and lint_errors(after) <= lint_errors(before) else ""
