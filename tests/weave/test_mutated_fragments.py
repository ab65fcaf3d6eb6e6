"""Fragments with something wrong in them are refused with a place and a remedy, or woven into Python: nothing else.

MUTANTS=1000 tries that many.
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from generator.errors import LoomError
from generator.recipe.library import Library
from generator.weaver import weave

ROOT = Path(__file__).parents[1] / "golden" / "operators" / "input"
FILES = {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted(ROOT.rglob("*")) if path.is_file()}
FRAGMENTS = [path for path in FILES if path.startswith("fragments/")]
TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
WORDS = sorted({word for path in FRAGMENTS for word in TOKEN.findall(FILES[path]) if word.strip()})
WORDS += "None lambda yield await async global nonlocal * ** / := import class del with return pass ... 1e999 é".split()
WORDS += ["\\", "\t", "\0", "\x0c", "'''", '"', "#", "9" * 5000, "(" * 300]
WORDS += "proceed() emit(x) receive(x) threaded() setting('x') point('x') layers.groups @splice('a')".split()


def mutated(text: str, draw: random.Random) -> str:
    """A text with some tokens or lines lost, doubled, moved or replaced."""
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        parts = TOKEN.findall(text)
        here, there = draw.randrange(len(parts)), draw.randrange(len(parts))
        lines = text.split("\n")
        line, other = draw.randrange(len(lines)), draw.randrange(len(lines))
        match draw.randrange(8):
            case 0:
                del parts[here]
            case 1:
                parts[here] = draw.choice(WORDS)
            case 2:
                parts.insert(here, f"{draw.choice(WORDS)} ")
            case 3:
                parts[here] *= 2
            case 4:
                parts[here], parts[there] = parts[there], parts[here]
            case 5:
                parts = ["\n".join(lines[:line] + lines[line + 1 :])]
            case 6:
                parts = ["\n".join([*lines[:line], lines[other], *lines[line:]])]
            case _:
                parts = ["\n".join([*lines[:line], f"    {lines[line]}", *lines[line + 1 :]])]
        text = "".join(parts)
    return text


@pytest.mark.parametrize("seed", range(int(os.environ.get("MUTANTS", "120"))))
def test_mutant(seed):
    draw = random.Random(seed)
    path = draw.choice(FRAGMENTS)
    try:
        package = weave("toy", "gpu", Library(FILES | {path: mutated(FILES[path], draw)}))
    except LoomError as error:
        assert error.where and error.remedy
    else:
        for name, text in package.files.items():
            if name.endswith(".py"):
                compile(text, name, "exec")
