"""Writes the fragment line below each frame of a traceback, and keeps every byte of the traceback.

It knows the frames of Python (in exception groups, with carets, in colour, behind the prefix of a launcher), the places
of pytest, `model.py:88: in f`, and those in messages of JAX, `at model.py:88` and `on line model.py:88:4 (f)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from generator.running.woven_files import WovenFile, WovenFiles

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
FRAME = re.compile(r'^(.*?)File "([^"]+)", line (\d{1,9})(?!\d)')
PLACE = re.compile(r"^(.*?\b(?:at|line) |[ |]*)([^\s\"'():]+\.py):(\d{1,9})\b(?!\d)")
MAX_LENGTH = 10_000  # characters of a line that can be a frame


class _Frame(NamedTuple):
    """A frame whose annotation is not written yet.

    Attributes:
        prefix: the text before `File`, such as that of a launcher.
        end: the line end.
        of_python: whether the next line is its source text.
    """

    prefix: str
    woven: WovenFile
    line: int
    end: bytes
    of_python: bool


def annotate_traceback(lines: Iterable[bytes], files: WovenFiles) -> Iterator[bytes]:
    """Yields the lines, and below each frame of a package its fragment line; it reads at most one line ahead."""
    last: _Frame | None = None
    for line in lines:
        text = COLOUR.sub("", line.decode("utf-8", "surrogateescape")) if len(line) <= MAX_LENGTH else ""
        if last:
            yield _annotate(last, text, files)
        yield line
        last = _parse_frame(text, line, files)
    if last:
        yield _annotate(last, "", files)


def _parse_frame(text: str, line: bytes, files: WovenFiles) -> _Frame | None:
    """Returns the frame of a package in a line; None if there is none."""
    frame = FRAME.match(text)
    if match := frame or PLACE.match(text):
        woven = files.find(match[2])
        if woven and woven.segments(int(match[3])):
            end = line[len(line.rstrip(b"\r\n")) :]
            prefix = match[1] if frame or not match[1].strip(" |") else re.split(r"[^ |]", match[1])[0]
            return _Frame(prefix, woven, int(match[3]), end, bool(frame))
    return None


def _annotate(frame: _Frame, following: str, files: WovenFiles) -> bytes:
    """Returns the line below a frame, given the line that follows it in the traceback."""
    woven = frame.woven
    sources = list(dict.fromkeys(origin for _, origin in woven.segments(frame.line)))
    first, names = sources[0], list(dict.fromkeys(_fragment_name(origin.path) for origin in sources))
    parts = f", with parts of {', '.join(names[1:])}" if names[1:] else ""
    notes = [*woven.notes, *filter(None, [files.drift(woven.package, first.path)])]
    is_source = frame.of_python and following.startswith(frame.prefix + "  ") and not FRAME.match(following)
    if is_source and not notes:
        current = woven.package.read_lines(woven.path)[frame.line - 1]
        if following.removeprefix(frame.prefix).strip() != current.strip():
            notes.append("the line reads otherwise now: lines may be off")
    note = f"  [{'; '.join(notes)}]" if notes else ""
    text = f"{frame.prefix}  -> {first.path}:{first.line} ({names[0]}){parts}{note}"
    newline = frame.end or b"\n"
    encoded = text.encode("utf-8", "surrogateescape")
    return encoded + newline if frame.end else newline + encoded


def _fragment_name(path: str) -> str:
    return path.removeprefix("fragments/").removesuffix(".py")
