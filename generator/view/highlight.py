"""Colours code, line by line: keywords, strings, comments, and the names that are defined."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache, lru_cache
from html import escape
from itertools import pairwise
from pathlib import PurePosixPath

from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Operator, String, _TokenType

_LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".html": "html", ".md": "markdown", ".slurm": "bash"}
# short, for there are 100,000 lines: b keyword, b.f defined name, i comment or docstring, u string
_TAGS = (
    (Comment, "i", "<i>"),
    (String.Doc, "i", "<i>"),
    (String, "u", "<u>"),
    (Keyword, "b", "<b>"),
    (Operator.Word, "b", "<b>"),
    (Name.Function, "b", "<b class=f>"),
    (Name.Class, "b", "<b class=f>"),
)


def highlight(path: str, lines: list[str]) -> list[str]:
    """Returns each line as HTML.

    Args:
        path: its suffix says the language; that of a template stands before `.jinja`.
    """
    language = _LANGUAGES.get(PurePosixPath(path.removesuffix(".jinja")).suffix)
    if not language or not lines:
        return [escape(line, quote=False) for line in lines]
    cuts = _cuts("\n".join(lines)) if language == "python" else []
    bounds = [0, *cuts, len(lines)]
    return [line for start, end in pairwise(bounds) for line in _marked(language, "\n".join(lines[start:end]))]


def _cuts(text: str) -> Iterator[int]:
    """Yields where top-level statements start, from 0: pieces are coloured once, however many files have them."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return
    end = 0
    for node in body:
        start = min(line.lineno for line in [node, *getattr(node, "decorator_list", [])])
        if start > max(end, 1):
            yield start - 1
        end = node.end_lineno or start


@lru_cache(maxsize=1 << 15)
def _marked(language: str, text: str) -> list[str]:
    lines = [""]
    for _, kind, value in _lexer(language).get_tokens_unprocessed(f"{text}\n"):
        close, tag = _tag(kind)
        for number, part in enumerate(value.split("\n")):
            if number:
                lines.append("")
            if part:
                shown = escape(part, quote=False)
                lines[-1] += f"{tag}{shown}</{close}>" if tag and not part.isspace() else shown
    return [line.replace("</i><i>", "").replace("</u><u>", "") for line in lines[:-1]]


_lexer = cache(get_lexer_by_name)


@cache
def _tag(kind: _TokenType) -> tuple[str, str]:
    return next(((close, tag) for known, close, tag in _TAGS if kind in known), ("", ""))
