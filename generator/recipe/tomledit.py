"""A name added to a list of a TOML file, the rest of which stays as it is: comments, order, layout."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from generator.errors import LoomError
from generator.recipe.tomltext import lines_of, parse_toml

WIDTH = 120
LATE = re.compile(r"\[\[?(structure|neutral|presets)\b")  # an architecture's tables that stand below those of targets
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\'[^\']*\'|#.*|[\[\]]')


def with_name(text: str, path: str, table: tuple[str, ...], key: str, name: str) -> str:
    """The text with a string more in a list.

    Args:
        path: how errors name the file.
        table: the keys of the table that has the list, none for the top; it is added where the file has none.
        key: of the list in it.
    """
    wanted: Any = parse_toml(text, path)
    here = wanted
    for word in table:
        here = here.setdefault(word, {})
    here[key] = [*here.get(key, []), name]
    lines, places = text.split("\n"), lines_of(text)
    if (*table, key) in places:
        changed = _longer(lines, places[*table, key] - 1, name)
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
        same = tomllib.loads("\n".join(changed)) == wanted
    except tomllib.TOMLDecodeError:
        same = False
    if not same:
        where = f"{path}:{places.get((*table, key), places.get(table, 1))}"
        head = f" under [{'.'.join(table)}]" if table else ""
        raise LoomError(f"{key}{head} cannot be made longer by gen", where, f'Add "{name}" to it by hand.')
    return "\n".join(changed)


def _end_of_table(lines: list[str], start: int) -> int:
    """The line after the last one of a table that is no blank and no comment; its own head is above `start`."""
    end = next((n for n in range(start, len(lines)) if lines[n].startswith("[")), len(lines))
    while end > start and (not lines[end - 1].strip() or lines[end - 1].startswith("#")):
        end -= 1
    return end


def _longer(lines: list[str], start: int, name: str) -> list[str]:
    """The lines with a name more in the list that begins at `start`."""
    depth, items, last = 0, 0, (start, 0)  # last: where the last item ends
    for row in range(start, len(lines)):
        for token in _TOKEN.finditer(lines[row]):
            word = token[0]
            if word.startswith("#"):
                continue
            depth += (word == "[") - (word == "]")
            if word[0] in "\"'" and depth:
                last, items = (row, token.end()), items + 1
            elif word == "]" and not depth:
                return _added(lines, start, (row, token.start()), last, items, name)
    return lines


def _added(
    lines: list[str], start: int, end: tuple[int, int], last: tuple[int, int], items: int, name: str
) -> list[str]:
    (row, column), (item_row, item_end) = end, last
    if row == start:
        line = lines[row]
        longer = f'{line[: item_end or column]}{", " if items else ""}"{name}"{line[item_end or column :]}'
        if len(longer) <= WIDTH or "#" in line:
            return [*lines[:row], longer, *lines[row + 1 :]]
        opening, names = longer.split("[", 1)[0], re.findall(r'"[^"]*"', longer.split("[", 1)[1])
        return [*lines[:row], f"{opening}[", *(f"    {one}," for one in names), "]", *lines[row + 1 :]]
    changed = list(lines)
    if items:
        rest = changed[item_row][item_end:]
        changed[item_row] = changed[item_row][:item_end] + (rest if rest.lstrip().startswith(",") else f",{rest}")
    indent = re.match(r"\s*", changed[item_row])[0] if items and item_row > start else "    "  # type: ignore[index]
    if changed[row][:column].strip():  # the list ends on the line of its last item
        at = changed[row].index("]", column)
        changed[row] = f'{changed[row][:at].rstrip()} "{name}"{changed[row][at:]}'
        return changed
    return [*changed[:row], f'{indent}"{name}",', *changed[row:]]
