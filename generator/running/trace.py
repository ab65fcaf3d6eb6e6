"""Writes the fragment line below each frame of a traceback; every byte of the traceback stays.

Known are the frames of Python (in exception groups, with carets, in colour, behind the prefix of a launcher), the
places of pytest, `model.py:88: in f`, and those in messages of JAX, `at model.py:88` and `on line model.py:88:4 (f)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from generator.running.origins import Origins, WovenFile

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
FRAME = re.compile(r'^(.*?)File "([^"]+)", line (\d{1,9})(?!\d)')
PLACE = re.compile(r"^(.*?\b(?:at|line) |[ |]*)([^\s\"'():]+\.py):(\d{1,9})\b(?!\d)")
LONGEST = 10_000  # characters of a line that can be a frame


class _Frame(NamedTuple):
    """A frame whose line below is still to be written."""

    prefix: str
    woven: WovenFile
    line: int
    end: bytes
    of_python: bool  # whether its source text follows


def annotate_traceback(lines: Iterable[bytes], origins: Origins) -> Iterator[bytes]:
    """Yields the lines, and below each frame of a package a line with its source; at most one line is held back."""
    last: _Frame | None = None
    for line in lines:
        text = COLOUR.sub("", line.decode("utf-8", "surrogateescape")) if len(line) <= LONGEST else ""
        if last:
            yield _annotation(last, text, origins)
        yield line
        last = _frame(text, line, origins)
    if last:
        yield _annotation(last, "", origins)


def _frame(text: str, line: bytes, origins: Origins) -> _Frame | None:
    frame = FRAME.match(text)
    if match := frame or PLACE.match(text):
        woven = origins.find(match[2])
        if woven and woven.segments(int(match[3])):
            end = line[len(line.rstrip(b"\r\n")) :]
            prefix = match[1] if frame or not match[1].strip(" |") else re.split(r"[^ |]", match[1])[0]
            return _Frame(prefix, woven, int(match[3]), end, bool(frame))
    return None


def _annotation(frame: _Frame, following: str, origins: Origins) -> bytes:
    """Writes the line below a frame, given the line that followed it."""
    woven = frame.woven
    segments = list(dict.fromkeys(origin for _, origin in woven.segments(frame.line)))
    first, names = segments[0], list(dict.fromkeys(_name(origin.path) for origin in segments))
    parts = f", with parts of {', '.join(names[1:])}" if names[1:] else ""
    notes = [*woven.notes, *filter(None, [origins.changed(woven.package, first.path)])]
    follows = frame.of_python and following.startswith(frame.prefix + "  ") and not FRAME.match(following)
    if follows and not notes:
        now = woven.package.read_lines(woven.path)[frame.line - 1]
        if following.removeprefix(frame.prefix).strip() != now.strip():
            notes.append("the line reads otherwise now: lines may be off")
    note = f"  [{'; '.join(notes)}]" if notes else ""
    text = f"{frame.prefix}  -> {first.path}:{first.line} ({names[0]}){parts}{note}"
    newline = frame.end or b"\n"
    encoded = text.encode("utf-8", "surrogateescape")
    return encoded + newline if frame.end else newline + encoded


def _name(path: str) -> str:
    return path.removeprefix("fragments/").removesuffix(".py")
