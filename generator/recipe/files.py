"""Reads source files: regular files of UTF-8 text."""

from __future__ import annotations

import codecs
import io
import re
import tokenize
import unicodedata
from pathlib import Path

from generator.errors import LoomError

MAX_BYTES = 20_000_000  # more than any source has
# letters that look like those of ASCII: of Cyrillic, Greek, Armenian and Cherokee
GREEK = "\u0391\u0392\u0395-\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03b1\u03b9\u03bd\u03bf\u03c1"
LOOKALIKE = re.compile(f"[\u0400-\u052f\u0530-\u058f\u13a0-\u13ff{GREEK}]")
WORD = re.compile(r"\w*[A-Za-z]\w*")


def read_text(path: Path, where: str, remedy: str = "Make it a file of UTF-8 text that you may read.") -> str:
    """Returns the text of a file, with its own line ends.

    Args:
        where: the file as messages name it.
    """
    try:
        if path.exists() and not path.is_file():  # reading a pipe or a device may never end
            raise LoomError("is not a regular file", where, "Put a file in its place.")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise LoomError(f"cannot be read: {error.strerror}", where, remedy) from None
    if len(data) > MAX_BYTES:
        raise LoomError(f"has more than {MAX_BYTES:,} bytes", where, "Give a shorter file.")
    if data.startswith(codecs.BOM_UTF8):
        raise LoomError("begins with a byte order mark", where, "Save it as UTF-8 without one.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise LoomError("is not UTF-8 text", f"{where}:{line}", remedy) from None


def check_characters(text: str, where: str) -> None:
    """Refuses a source that does not say what it shows (Boucher and Anderson 2021, arXiv 2111.00169).

    These are characters that are not visible or turn the direction of writing, words that mix letters of ASCII with
    letters that look like them, and names of Python that are not ASCII.
    """
    for number, line in enumerate(re.split("\r\n?|\n", text), 1):
        for character in line if not line.isprintable() else "":
            if not character.isprintable() and character != "\t":
                name = f"U+{ord(character):04X} {unicodedata.name(character, 'control character')}"
                remedy = f"Remove it, or write it as an escape: \\u{ord(character):04x}."
                raise LoomError(f"has a character that cannot be seen: {name}", f"{where}:{number}", remedy)
        for word in WORD.findall(line) if not line.isascii() else ():
            if LOOKALIKE.search(word):
                remedy = "Write it with the letters of one alphabet, or as an escape."
                raise LoomError(f"has a word of two alphabets: {word!a}", f"{where}:{number}", remedy)
    if where.endswith(".py") and not text.isascii():
        _check_names(text, where)


def _check_names(text: str, where: str) -> None:
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME and not token.string.isascii():
                remedy = "Write it with letters of ASCII."
                raise LoomError(f"has the name {token.string!a}", f"{where}:{token.start[0]}", remedy)
    except (tokenize.TokenError, SyntaxError):
        return  # refused with its line when it is parsed
