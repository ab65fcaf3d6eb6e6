"""Each rule of tidy, by the pairs in its documentation, and that nothing changes but at seams."""

from __future__ import annotations

from textwrap import dedent

import pytest

from generator.code.traced import Traced
from generator.tidy.tidy import RULES, tidy

PAIRS = [(dedent(before).lstrip(), dedent(after).lstrip()) for rule in RULES for before, after in rule.PAIRS]


def apart(text: str) -> Traced:
    """Each line of a text as that of a source of its own."""
    return Traced.join(Traced.copy(line, f"{number}.py") for number, line in enumerate(text.splitlines(keepends=True)))


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=lambda text: text.partition("(")[0])
def test_pairs(before, after):
    assert tidy(apart(before), lambda _: 0).text == after
    together = Traced.copy(before, "a.py")
    indents = [len(line) - len(line.lstrip()) for line in before.splitlines()]
    assert tidy(together, lambda origin: indents[origin.line - 1]) == together
