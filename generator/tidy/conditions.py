"""Conditions that several fragments have a part in."""

from __future__ import annotations

import ast
from typing import ClassVar

from generator.code.edits import Edits
from generator.tidy.pair import WIDTH, Pair, Pairs, in_parentheses, without


class OneCondition:
    """Writes one condition for one that the next statement goes on with."""

    PAIRS: ClassVar[Pairs] = (
        (
            """
            def is_over(step, steps, signals):
                last = step == steps
                last = last or bool(signals)
                return last, step
            """,
            """
            def is_over(step, steps, signals):
                last = step == steps or bool(signals)
                return last, step
            """,
        ),
        (
            """
            def is_over(step, steps, signals):
                last = step == steps or step < 0
                last = last and not signals
                return last, step
            """,
            """
            def is_over(step, steps, signals):
                last = (step == steps or step < 0) and not signals
                return last, step
            """,
        ),
    )

    @staticmethod
    def applies(pair: Pair) -> bool:
        match pair.second:
            case ast.Assign(value=ast.BoolOp(values=[first, *_])) if pair.is_rebound:
                return pair.reads == (first,) and pair.width + 2 <= WIDTH
        return False

    @staticmethod
    def apply(pair: Pair, edits: Edits) -> None:
        value, joined = edits.find(pair.value), getattr(pair.second, "value", None)
        if isinstance(pair.value, (ast.IfExp, ast.Lambda, ast.NamedExpr)) or (
            isinstance(pair.value, ast.BoolOp) and type(pair.value.op) is not type(getattr(joined, "op", None))
        ):
            value = edits.kept(value, in_parentheses(value))
        edits.change(pair.reads[0], lambda _: value)
        without(edits, pair)
