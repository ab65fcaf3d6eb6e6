"""What a source file says about itself: its title and where its idea comes from."""

from __future__ import annotations

import ast
import tomllib
from pathlib import PurePosixPath


def title_and_citation(path: str, text: str) -> tuple[str, str]:
    """The title and the citation of a source file; each '' where the file does not say.

    A fragment says both in its docstring: the first line, and what follows `Source:` at the start of a line. A TOML
    file says them as `title` and `source`.

    Args:
        path: of the source, relative to its root.
        text: what it holds.
    """
    suffix = PurePosixPath(path).suffix
    if suffix == ".py":
        return _of_docstring(text)
    if suffix == ".toml":
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            return "", ""
        return str(table.get("title", "")), str(table.get("source", ""))
    return "", ""


def _of_docstring(text: str) -> tuple[str, str]:
    try:
        docstring = ast.get_docstring(ast.parse(text)) or ""
    except SyntaxError:
        return "", ""
    lines = docstring.splitlines()
    citations = [line.removeprefix("Source:").strip() for line in lines if line.startswith("Source:")]
    return (lines[0].rstrip(".") if lines else ""), "; ".join(citations).rstrip(".")
