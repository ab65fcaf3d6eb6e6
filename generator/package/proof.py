"""Every file of a package is read as what it is before anybody gets it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping

from generator.code.memory import remembered
from generator.code.traced import Traced, line_starts
from generator.errors import LoomError, short
from generator.language.grammar import check_python

_READERS: dict[str, Callable[[str], object]] = {".toml": tomllib.loads, ".json": json.loads}


def check_files(files: Mapping[str, str], woven: Mapping[str, Traced], templates: Mapping[str, str]) -> None:
    """Refuses files that are not what their suffix says.

    Args:
        files: path in the package -> text.
        woven: those of Python, with their origins.
        templates: path in the package -> template, of the others.
    """
    for path, text in files.items():
        suffix = path[path.rfind(".") :]
        if suffix == ".py":
            _, _, body = text.partition("\n")
            if line := _wrong_line(body):
                where = woven[path].origin_at(line_starts(text)[line]) if path in woven else templates[path]
                message = f"{path}, line {line + 1}, would be no Python: {short(text.split(chr(10))[line].strip())}"
                raise LoomError(message, str(where), "Fix this line, or what is woven into it.")
        elif suffix in _READERS:
            try:
                _READERS[suffix](text)
            except (ValueError, RecursionError) as error:
                message = f"{path} would be no {suffix[1:].upper()}: {short(str(error), 300)}"
                raise LoomError(message, templates[path], "Fix the template, or what it is given.") from None


@remembered
def _wrong_line(text: str) -> int:
    """The number of the line at which a text is no Python, 0 where it is; packages have most texts in common."""
    try:
        check_python(text, "text")
    except LoomError as error:
        return int((error.where or "").partition(":")[2] or 1)
    return 0
