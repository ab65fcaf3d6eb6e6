"""Applies the rules at seams, until none applies; what a fragment wrote in one piece stays as it is.

A seam is between two statements that do not follow each other in a source: a point between them stayed empty, or one of
them is of a splice, or a block around one of them went.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise

from generator.code.caching import cached
from generator.code.edits import Edits
from generator.code.traced import Origin, Traced
from generator.code.tree import TracedTree, Tree, parse
from generator.tidy.conditions import OneCondition
from generator.tidy.literals import OneLiteral
from generator.tidy.pair import Pair, Rule
from generator.tidy.values import Inlined, Returned

Rules = tuple[type[Rule], ...]
RULES: Rules = (Returned, OneLiteral, OneCondition, Inlined)
IndentOf = Callable[[Origin], int]


def indentation(files: Mapping[str, str]) -> IndentOf:
    """Returns a function that counts the blanks at the start of a line of a source."""

    @cache
    def counts(path: str) -> list[int]:
        return [len(line) - len(line.lstrip()) for line in files[path].split("\n")]

    return lambda origin: counts(origin.path)[origin.line - 1]


def tidy(text: Traced, indent_of: IndentOf, rules: Rules = RULES) -> Traced:
    """Returns statements without what is left of seams.

    Args:
        indent_of: the number of blanks that a line of a source begins with.
    """
    while seams := [i for i, rows in enumerate(_candidates(text.text, rules)) if _is_seam(text, *rows, indent_of)]:
        text = _applied(text, rules, seams[0])
    return text


@cached
def _candidates(text: str, rules: Rules) -> tuple[tuple[int, int], ...]:
    """Returns the last line of one and the first line of the next statement, from 0, where a rule would apply."""
    tree = parse(text)
    pairs = [pair for pair, _ in _matching(tree, rules)]
    return tuple((tree.row(pair.first.end_lineno or 0), tree.row(pair.second.lineno)) for pair in pairs)


def _matching(tree: Tree, rules: Rules) -> list[tuple[Pair, type[Rule]]]:
    """Returns each pair to which a rule applies, with the first such rule."""
    pairs = [pair for pair in Pair.all(tree) if not pair.has_comments]
    chosen = [next((rule for rule in rules if rule.applies(pair)), None) for pair in pairs]
    return [(pair, rule) for pair, rule in zip(pairs, chosen, strict=True) if rule]


def _is_seam(text: Traced, last: int, first: int, indent_of: IndentOf) -> bool:
    """Returns whether lines do not follow each other in one source, or not at the same distance from the margin."""
    lines = [text.rows(row, row + 1) for row in range(last, first + 1)]
    return any(_are_apart(one, two, indent_of) for one, two in pairwise(lines))


def _are_apart(one: Traced, two: Traced, indent_of: IndentOf) -> bool:
    above, below = one.origin_at(0), two.origin_at(0)
    if below != Origin(above.path, above.line + 1):
        return True
    blanks = [len(line.text) - len(line.text.lstrip()) for line in (one, two)]
    is_blank = not (one.text.strip() and two.text.strip())
    return not is_blank and blanks[1] - blanks[0] != indent_of(below) - indent_of(above)


@cached
def _applied(text: Traced, rules: Rules, place: int) -> Traced:
    """Returns statements in which a rule was applied to a candidate."""
    edits = Edits(source := TracedTree(text))
    pair, rule = _matching(source.tree, rules)[place]
    rule.apply(pair, edits)
    return edits.made()
