"""Tables as aligned text and as Markdown."""

from __future__ import annotations

from typing import NamedTuple


class Table(NamedTuple):
    """A table; numbers in a column are set to the right.

    Attributes:
        title: what it shows.
        heads: a name for each column.
        rows: for each row a cell for each column.
        note: how the numbers were taken, '' where the title says it.
    """

    title: str
    heads: tuple[str, ...]
    rows: list[tuple]
    note: str = ""


def format_text(table: Table) -> str:
    """A table as aligned text, with its title above and its note below."""
    cells = [table.heads, *([_cell(value) for value in row] for row in table.rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(table.heads))]
    right = _numeric(table)
    lines = [table.title] if table.title else []
    for row in cells:
        parts = [_pad(cell, width, side) for cell, width, side in zip(row, widths, right, strict=True)]
        lines.append("  " + "  ".join(parts).rstrip())
    return "\n".join(lines + ([f"  {table.note}"] if table.note else []))


def format_markdown(table: Table) -> str:
    """A table in Markdown, with its title above and its note below."""
    rule = ["---:" if side else "---" for side in _numeric(table)]
    rows = [table.heads, rule, *([_cell(value).replace("|", "\\|") for value in row] for row in table.rows)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    title = [f"**{table.title}**", ""] if table.title else []
    return "\n".join(title + lines + (["", table.note] if table.note else []))


def as_data(table: Table) -> list[dict[str, object]]:
    """Returns the rows of a table as JSON has them: by the heads of their columns."""
    return [dict(zip(table.heads, row, strict=True)) for row in table.rows]


def _numeric(table: Table) -> list[bool]:
    """Whether each column holds numbers; None stands for a number that there is not."""
    columns = zip(*table.rows, strict=True) if table.rows else [()] * len(table.heads)
    return [all(value is None or isinstance(value, (int, float)) for value in column) for column in columns]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _pad(cell: str, width: int, right: bool) -> str:
    return cell.rjust(width) if right else cell.ljust(width)
