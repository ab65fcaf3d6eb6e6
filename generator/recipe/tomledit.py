"""A name added to a list of a TOML file, the rest of which stays as it is: comments, order, layout."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from generator.errors import LoomError
from generator.recipe.toml import lines_of, parse_toml

WIDTH = 120
LATE = re.compile(r"\[\[?(structure|neutral|presets)\b")  # an architecture's tables that stand below those of targets


def with_name(text: str, path: str, table: tuple[str, ...], key: str, name: str) -> str:
    """Adds a string to a list.

    Args:
        path: how errors name the file.
        table: the keys of the table that has the list, none for the top; it is added where the file has none.
        key: of the list in it.
    """
    expected: Any = parse_toml(text, path)
    inner = expected
    for word in table:
        inner = inner.setdefault(word, {})
    inner[key] = [*inner.get(key, []), name]
    lines, places = text.split("\n"), lines_of(text)
    if (*table, key) in places:
        changed = _extended(lines, places[*table, key] - 1, name)
    elif table in places or not table:
        after = _end_of_table(lines, places[table] if table else 0)
        changed = [*lines[:after], f'{key} = ["{name}"]', *lines[after:]]
    else:
        at = next((n for n, line in enumerate(lines) if LATE.match(line)), len(lines) - (not lines[-1]))
        while at and lines[at - 1].startswith("#"):  # a comment belongs to what stands below it
            at -= 1
        above = [""] if at and lines[at - 1].strip() else []
        below = [""] if lines[at:] and lines[at].strip() else []
        changed = [*lines[:at], *above, f"[{'.'.join(table)}]", f'{key} = ["{name}"]', *below, *lines[at:]]
    try:
        if tomllib.loads("\n".join(changed)) == expected:
            return "\n".join(changed)
    except tomllib.TOMLDecodeError:
        pass
    where = f"{path}:{places.get((*table, key), places.get(table, 1))}"
    head = f" under [{'.'.join(table)}]" if table else ""
    raise LoomError(f"gen cannot add to {key}{head}", where, f'Add "{name}" to it by hand.')


def _end_of_table(lines: list[str], start: int) -> int:
    """Returns the line after the last one of a table that is no blank and no comment; its head is above `start`."""
    end = next((n for n in range(start, len(lines)) if lines[n].startswith("[")), len(lines))
    while end > start and (not lines[end - 1].strip() or lines[end - 1].startswith("#")):
        end -= 1
    return end


def _extended(lines: list[str], start: int, name: str) -> list[str]:
    """Returns the lines with a name more in the list that begins at `start`, as far as the list is plainly written."""
    line = lines[start]
    if "]" in line:
        opening, _, rest = line.partition("[")
        inside, _, after = rest.rpartition("]")
        names = [*filter(None, (word.strip() for word in inside.split(","))), f'"{name}"']
        longer = f"{opening}[{', '.join(names)}]{after}"
        several = [f"{opening}[", *(f"    {one}," for one in names), f"]{after}"]
        return [*lines[:start], *([longer] if len(longer) <= WIDTH else several), *lines[start + 1 :]]
    end = next((n for n in range(start, len(lines)) if lines[n].lstrip().startswith("]")), start)
    last = next((n for n in range(end - 1, start, -1) if not lines[n].lstrip().startswith("#")), start)
    item, space, comment = lines[last].partition("  #")
    comma = "" if item.rstrip().endswith((",", "[")) else ","
    return [*lines[:last], f"{item}{comma}{space}{comment}", *lines[last + 1 : end], f'    "{name}",', *lines[end:]]
