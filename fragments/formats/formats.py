"""Documents of a file, by its format: text or JSONL."""

import array
import functools
import io
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from generator.language import point
from generator.language.roles import InputError

JSONL = re.compile("(?i)[.](jsonl|ndjson)(-[0-9]+-of-[0-9]+)?$")  # of names of files; such as .jsonl-00000-of-00010
TEXT_BYTES = 65_536  # about the longest document from a plain text file


class Documents(NamedTuple):
    """Reads the documents of one file by their number."""

    count: int
    read: Callable[[int], str]
    left_out: int = 0  # rows whose text is null


class OpenFile(io.FileIO):
    __del__ = io.FileIO.close  # once it has left the cache and is unreferenced


open_file = functools.lru_cache(maxsize=256)(OpenFile)


class Content:
    """Reads ranges of bytes and lines of one file."""

    def __init__(self, path: Path):
        self.path = path
        point("Content.parameters", path)
        self.size = self.opened().seek(0, io.SEEK_END)

    def opened(self) -> OpenFile:
        with point("Content.opened"):
            file = open_file(self.path)
        return file

    def read(self, start: int, stop: int) -> bytes:
        file = self.opened()  # as another thread may evict it from the cache
        content = os.pread(file.fileno(), stop - start, start)
        if len(content) < stop - start:
            size = start + len(content)
            raise InputError(f"{self.path}: has been cut to {size} bytes since the run began: start again")
        return content

    def lines(self) -> Iterator[bytes]:
        with open(os.dup(self.opened().fileno()), "rb") as file:
            file.seek(0)
            yield from file


def as_text(value: object, source: str, start: int = 0) -> str:
    """Returns a document as a str, from a str or UTF-8 bytes; errors name its `source`, and the byte after `start`."""
    try:
        value = value.decode("utf-8-sig") if isinstance(value, bytes) else value
    except UnicodeDecodeError as error:
        raise InputError(f"{source}: byte {start + error.start} is not UTF-8: convert it, or leave it out") from None
    point("as_text.value", value, source)
    if not isinstance(value, str):
        raise InputError(f"{source}: the text is {value!r}, not a string: fix it, or leave it out")
    # half a surrogate pair, which JSON can hold and UTF-8 cannot, becomes U+FFFD
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def open_text(content: Content) -> Documents:
    path, size = content.path, content.size
    if b"\0" in content.read(0, min(size, 8192)):  # as git recognises binary files
        raise InputError(f"{path}: neither text nor a file type that is known: unpack it, or choose: 'DIR/**/*.txt'")
    count = -(-size // TEXT_BYTES)
    bounds = {0, size}
    for offset in (size * i // count for i in range(1, count)):
        window = content.read(offset, min(size, offset + 4096))
        characters = (i for i, byte in enumerate(window) if byte & 0xC0 != 0x80)  # starts of UTF-8 characters
        bounds.add(offset + (window.find(b"\n") + 1 or next(characters, 0)))
    pieces = list(itertools.pairwise(sorted(bounds)))
    return Documents(len(pieces), lambda i: as_text(content.read(*pieces[i]), str(path), pieces[i][0]))


def open_jsonl(content: Content, field: str) -> Documents:
    """Reads the file once to find its lines; skips blank ones."""

    def get(line: bytes, number: int) -> Any:
        try:
            with point("open_jsonl.value", line, field):
                value = json.loads(line)[field]
            return value
        except (ValueError, RecursionError, KeyError, TypeError) as error:  # no JSON, no field text, no object
            problem = f"{content.path}:{number}: must be JSON with a field {field}: {type(error).__name__}: {error}"
            raise InputError(f"{problem}: fix it, leave it out, or give another --text-field") from None

    with point("open_jsonl.lines", content, field):
        lines = array.array("q")  # number, start and end of each line
        size, left_out = 0, 0
        for n, row in enumerate(content.lines(), 1):
            begin, size = size, size + len(row)
            if b"null" in row and get(row, n) is None:
                left_out += 1
            elif row.strip():
                lines.extend((n, begin, size))

    def read(i: int) -> str:
        number, start, end = lines[3 * i : 3 * i + 3]
        return as_text(get(content.read(start, end), number), f"{content.path}:{number}")

    return Documents(len(lines) // 3, read, left_out)


def open_by_format(path: Path, field: str) -> Documents:
    """Opens the documents of a file by its suffix: lines of JSONL, or text."""
    content = Content(path)
    with point("open_by_format.format", content, path, field):
        documents = open_jsonl(content, field) if JSONL.search(path.name) else open_text(content)
    return documents
