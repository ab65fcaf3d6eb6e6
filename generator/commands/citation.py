"""Reads the title and the citation of a source file."""

from __future__ import annotations

import ast
import tomllib
from pathlib import PurePosixPath


def parse_title_and_citation(path: str, text: str) -> tuple[str, str]:
    """Returns the title and the citation of a source file, each "" if the file has none.

    A fragment has both in its docstring: the title is the first line, the citation follows `Source:` at the start of a
    line. A TOML file has them as `title` and `source`.

    Args:
        path: of the source, relative to its root.
        text: its content.
    """
    suffix = PurePosixPath(path).suffix
    try:
        if suffix == ".toml":
            table = tomllib.loads(text)
            return str(table.get("title", "")), str(table.get("source", ""))
        docstring = (ast.get_docstring(ast.parse(text)) or "") if suffix == ".py" else ""
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # a build says what is wrong
        return "", ""
    lines = docstring.splitlines()
    citations = [line.removeprefix("Source:").strip() for line in lines if line.startswith("Source:")]
    return (lines[0].rstrip(".") if lines else ""), "; ".join(citations).rstrip(".")
