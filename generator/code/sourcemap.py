"""Source maps, version 3, from woven Python to the lines of its sources: the content of `gen.map`.

The format is that of ECMA-426, https://tc39.es/ecma426/. A file's `mappings` has its lines between semicolons, a line's
segments between commas, and a segment as four numbers: column, index of the source, line of the source, column of the
source. Each is the difference from the one before it (columns start anew on each line), written in base 64. Lines count
from 0 there, from 1 in an `Origin`. Columns count characters; the column of the source is always 0.
"""

from __future__ import annotations

import json

from generator.code.traced import Origin, Traced
from generator.errors import LoomError

ABOUT = (
    "For each file a source map, version 3 (https://tc39.es/ecma426/): which fragment line a stretch was woven from."
)
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

Lines = list[list[tuple[int, Origin]]]  # for each line, from 0, its segments: (column, origin)


def segments(text: Traced) -> Lines:
    """Returns the segments of each line, in column order: a new one wherever the origin changes.

    The first starts at column 0 and has the origin of the first character that is not white space. A blank line has the
    first origin of the line before it, and blank lines at the start have that of the first line that is not blank.
    """
    lines: Lines = [[]]
    column = 0
    for piece in text.pieces:
        for row, part in enumerate(piece.text.split("\n")):
            if row > 0:
                lines.append([])
                column = 0
            line = lines[-1]
            origin = piece.of_row(row)
            if line and part and line[-1][1] != origin:
                line.append((column, origin))
            elif not line and part.strip():
                line.append((0, origin))
            column += len(part)
    if not text.text or text.text.endswith("\n"):
        lines.pop()  # what follows the last newline is no line
    if lines and not any(lines):
        raise LoomError("only blank lines, which have no origin", str(text.origin_at(0)), "Leave the text empty.")
    before = next(filter(None, lines), [])  # the line that blank lines follow
    for row, line in enumerate(lines):
        before = line or before[:1]
        lines[row] = before
    return lines


def format_map(origins: dict[str, Lines]) -> str:
    """Returns the text of `gen.map`: a JSON object with a source map for each woven file, a line each, sorted by path.

    Args:
        origins: path of a woven file -> the segments of its lines, at least one a line.
    """
    files = [f"{json.dumps(path)}: {_format_file(path, origins[path])}" for path in sorted(origins)]
    body = "\n" + ",\n".join(files) + "\n" if files else ""
    return f'{{\n"about": {json.dumps(ABOUT)},\n"files": {{{body}}}\n}}\n'


def _format_file(path: str, lines: Lines) -> str:
    sources = list(dict.fromkeys(origin.path for line in lines for _, origin in line))
    index = {source: number for number, source in enumerate(sources)}
    last_index, last_line, groups = 0, 1, []
    for line in lines:
        last_column, group = 0, []
        for column, origin in line:
            step = [column - last_column, index[origin.path] - last_index, origin.line - last_line, 0]
            group.append("".join(encode_vlq(number) for number in step))
            last_column, last_index, last_line = column, index[origin.path], origin.line
        groups.append(",".join(group))
    record = {"version": 3, "file": path, "sources": sources, "names": [], "mappings": ";".join(groups)}
    return json.dumps(record, separators=(",", ":"))


def parse_map(text: str) -> dict[str, Lines]:
    """Reads the text of `gen.map`: path -> segments of its lines."""
    try:
        return {path: _parse_file(record) for path, record in json.loads(text)["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise LoomError(f"not a map that gen wrote ({error!r})", "gen.map", "Run gen build again.") from error


def _parse_file(record: dict) -> Lines:
    if not record["mappings"]:
        return []
    index, source_line, lines = 0, 1, []
    for group in record["mappings"].split(";"):
        column, line = 0, []
        for segment in group.split(","):
            steps = decode_vlq(segment)
            column, index, source_line = column + steps[0], index + steps[1], source_line + steps[2]
            if len(steps) != 4 or min(column, index, source_line - 1) < 0:
                raise ValueError(f"segment {segment!r}")
            line.append((column, Origin(record["sources"][index], source_line)))
        lines.append(line)
    return lines


def encode_vlq(number: int) -> str:
    """Returns a number as a base 64 variable-length quantity: 5 bits a digit, lowest first, after the sign."""
    rest, digits = abs(number) << 1 | (number < 0), ""
    while rest > 31:
        digits += DIGITS[32 | rest & 31]  # 32: more digits follow
        rest >>= 5
    return digits + DIGITS[rest]


def decode_vlq(digits: str) -> list[int]:
    """Returns the numbers of a segment.

    Raises:
        ValueError: a digit is not of base 64, or the last number is truncated.
    """
    numbers, rest, shift = [], 0, 0
    for digit in digits:
        value = DIGITS.index(digit)
        rest |= (value & 31) << shift
        shift += 5
        if value < 32:
            numbers.append(-(rest >> 1) if rest & 1 else rest >> 1)
            rest, shift = 0, 0
    if shift:
        raise ValueError(f"segment {digits!r} is truncated")
    return numbers
