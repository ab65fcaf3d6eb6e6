"""Highlights code line by line: keywords, strings, comments and defined names."""

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
# short tags, as there are 100,000 lines: b keyword, b.f defined name, i comment or docstring, u string
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
        path: its suffix, before `.jinja` of a template, determines the language.
    """
    language = _LANGUAGES.get(PurePosixPath(path.removesuffix(".jinja")).suffix)
    if not language or not lines:
        return [escape(line, quote=False) for line in lines]
    starts = _statement_starts("\n".join(lines)) if language == "python" else []
    bounds = [0, *starts, len(lines)]
    return [line for start, end in pairwise(bounds) for line in _highlight_text(language, "\n".join(lines[start:end]))]


def _statement_starts(text: str) -> Iterator[int]:
    """Yields the rows where top-level statements start, so that equal ones of several files are highlighted once."""
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
def _highlight_text(language: str, text: str) -> list[str]:
    """Returns the lines of a text as HTML; tags are closed at the end of each line."""
    lines = [""]
    for _, kind, value in _lexer(language).get_tokens_unprocessed(f"{text}\n"):
        close, tag = _tag(kind)
        for number, part in enumerate(value.split("\n")):
            if number:
                lines.append("")
            if part:
                escaped = escape(part, quote=False)
                lines[-1] += f"{tag}{escaped}</{close}>" if tag and not part.isspace() else escaped
    return [line.replace("</i><i>", "").replace("</u><u>", "") for line in lines[:-1]]


_lexer = cache(get_lexer_by_name)


@cache
def _tag(kind: _TokenType) -> tuple[str, str]:
    return next(((close, tag) for known, close, tag in _TAGS if kind in known), ("", ""))
