"""Formats tables as aligned text, as Markdown, and as data."""

from __future__ import annotations

from typing import NamedTuple


class Table(NamedTuple):
    """A table; columns of numbers are aligned to the right.

    Attributes:
        title: names the content.
        heads: the name of each column.
        rows: each has a cell for each column.
        note: explains how the numbers were obtained; "" if the title does.
    """

    title: str
    heads: tuple[str, ...]
    rows: list[tuple]
    note: str = ""


def format_text(table: Table) -> str:
    """Returns a table as aligned text, with its title above and its note below."""
    cells = [table.heads, *([_format_cell(value) for value in row] for row in table.rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    aligns = [">" if is_numeric else "<" for is_numeric in _find_numeric_columns(table)]
    lines = [table.title] if table.title else []
    for row in cells:
        padded = [f"{cell:{align}{width}}" for cell, align, width in zip(row, aligns, widths, strict=True)]
        lines.append("  " + "  ".join(padded).rstrip())
    return "\n".join(lines + ([f"  {table.note}"] if table.note else []))


def format_markdown(table: Table) -> str:
    """Returns a table in Markdown, with its title above and its note below."""
    rule = ["---:" if is_numeric else "---" for is_numeric in _find_numeric_columns(table)]
    rows = [table.heads, rule, *([_format_cell(value).replace("|", "\\|") for value in row] for row in table.rows)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    title = [f"**{table.title}**", ""] if table.title else []
    return "\n".join(title + lines + (["", table.note] if table.note else []))


def to_dicts(table: Table) -> list[dict[str, object]]:
    """Returns the rows of a table for JSON: the head of each column -> cell."""
    return [dict(zip(table.heads, row, strict=True)) for row in table.rows]


def _find_numeric_columns(table: Table) -> list[bool]:
    """Returns for each column whether it has only numbers, or None for a missing number."""
    columns = zip(*table.rows, strict=True) if table.rows else [()] * len(table.heads)
    return [all(value is None or isinstance(value, (int, float)) for value in column) for column in columns]


def _format_cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
