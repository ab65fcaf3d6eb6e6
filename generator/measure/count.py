"""Counts lines of text: physical ones, and those that hold code."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import PurePosixPath
from typing import NamedTuple

from generator.code.memory import remembered
from generator.errors import LoomError

_SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
_HASH_COMMENTS = {".toml", ".yaml", ".yml", ".sh", ".slurm", ".sbatch", ".cfg", ".ini", ".txt"}


class Lines(NamedTuple):
    """Numbers of lines; `code` leaves out blank lines, comments and docstrings."""

    physical: int = 0
    code: int = 0


def total(counts: list[Lines]) -> Lines:
    return Lines(sum(count.physical for count in counts), sum(count.code for count in counts))


def count(path: str, text: str) -> Lines:
    """The number of lines of a file.

    Args:
        path: its suffix says the language; in `job.yaml.jinja` that is YAML with jinja comments.
        text: what the file holds.
    """
    return Lines(len(text.splitlines()), len(code_lines(path, text)))


@remembered
def code_lines(path: str, text: str) -> tuple[int, ...]:
    """The numbers, from 1, of the lines that hold code.

    In Python comments, docstrings and blank lines hold none. In a template jinja's comments, in TOML, YAML and shell
    lines that are comments, and everywhere blank lines hold none.
    """
    name = PurePosixPath(path)
    template = name.suffix in (".jinja", ".j2")
    if template:
        # the line ends inside a comment stay, so that the numbers of the lines after it do
        text = re.sub(r"\{#.*?#\}", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)
        name = name.with_suffix("")
    if name.suffix == ".py" and not template:
        return python_code_lines(path, text)
    hashes = name.suffix in _HASH_COMMENTS
    return tuple(
        number
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not (hashes and line.lstrip().startswith("#"))
    )


def python_code_lines(path: str, text: str) -> tuple[int, ...]:
    """`code_lines` for Python."""
    try:
        tree = ast.parse(text)
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (SyntaxError, tokenize.TokenError) as error:
        line = getattr(error, "lineno", None) or 1
        raise LoomError(
            f"is not Python: {error}", f"{path}:{line}", "Correct it; its lines cannot be counted."
        ) from None
    numbers: set[int] = set()
    for token in tokens:
        if token.type not in _SILENT:
            numbers.update(range(token.start[0], token.end[0] + 1))
    blank = {number for number, line in enumerate(text.splitlines(), 1) if not line.strip()}
    return tuple(sorted(numbers - _docstring_lines(tree) - blank))


def _docstring_lines(tree: ast.Module) -> set[int]:
    numbers: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            numbers.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return numbers
