"""Which statements a change of a file is in, against what Python makes of both."""

from __future__ import annotations

import itertools
import random

import pytest

from generator.programs.bytecode import changed, same_code

# moved from one block to another: every statement, and their order, stays as it is
MOVED = {
    "out of an if": ("if a:\n    b()\n    c()\n", "if a:\n    b()\nc()\n"),
    "into an else": ("if a:\n    b()\n    c()\n", "if a:\n    b()\nelse:\n    c()\n"),
    "out of a loop": ("for a in b:\n    c()\n    d()\n", "for a in b:\n    c()\nd()\n"),
    "out of a try": (
        "try:\n    a()\n    b()\nexcept E:\n    c()\n",
        "try:\n    a()\nexcept E:\n    c()\nelse:\n    b()\n",
    ),
    "into a finally": ("try:\n    a()\nexcept E:\n    b()\n", "try:\n    a()\nfinally:\n    b()\n"),
    "out of a with": ("with a:\n    b()\n    c()\n", "with a:\n    b()\nc()\n"),
    "an else of another": (
        "for a in b:\n    if c:\n        d()\n    else:\n        e()\n",
        "for a in b:\n    if c:\n        d()\nelse:\n    e()\n",
    ),
}


@pytest.mark.parametrize("name", MOVED)
@pytest.mark.parametrize("inside", (False, True))
def test_statement_that_moves_to_another_block_is_changed(name, inside):
    before, after = (f"def f():\n{_indented(text)}" if inside else text for text in MOVED[name])
    assert not same_code(before, after)
    assert any(changed(before, after))


def test_files_of_other_bytecode_have_changed_statements():
    """Of files that have the same words in the same order, and differ in what stands in what."""
    draw, alike = random.Random(7), {}
    for _ in range(8000):
        text = "".join(_block(draw, 0))
        alike.setdefault(text.replace(" ", ""), {})[text] = None
    pairs = [(a, b) for texts in alike.values() for a, b in itertools.combinations(texts, 2) if not same_code(a, b)]
    assert len(pairs) > 100
    for before, after in pairs:
        assert any(changed(before, after)), f"{before}\n---\n{after}"


def _block(draw: random.Random, depth: int) -> list[str]:
    lines: list[str] = []
    for _ in range(draw.randint(1, 2)):
        if depth == 3 or draw.random() < 0.5:
            lines.append("a()\n")
            continue
        heads = draw.choice([("if a:",), ("if a:", "else:"), ("for b in a:",), ("try:", "finally:"), ("def f():",)])
        for head in heads:
            lines += [f"{head}\n", *("    " + line for line in _block(draw, depth + 1))]
    return lines


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())
