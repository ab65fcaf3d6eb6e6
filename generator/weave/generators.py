"""Keeps generators that nothing splices into generators: they yield nothing, and do not return None."""

from __future__ import annotations

import ast
import re

from generator.code.caching import cached
from generator.code.edits import Edits
from generator.code.traced import Traced
from generator.code.tree import FUNCTIONS, TracedTree, is_docstring, walk


@cached
def complete_generators(text: Traced) -> Traced:
    """Adds `yield from ()` to functions that are annotated as generators, and neither yield nor return a value."""
    if not re.search(r"-> (Iterator|Generator|Iterable)\b", text.text):
        return text
    edits = Edits(source := TracedTree(text))
    for function in walk(source.module):
        if isinstance(function, FUNCTIONS) and function.returns and _has_no_values(function):
            last = function.body[-1]
            line = edits.statement("yield from ()", source.origin(last))
            if isinstance(last, ast.Pass):
                edits.put(last, [line])
            else:
                edits.put_below(last, [line])
    return edits.made()


def _has_no_values(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Returns whether a generator's annotation stands over a body that makes no values; a stub has no body."""
    if not re.match(r"(Iterator|Generator|Iterable)\b", ast.unparse(function.returns or function)):
        return False
    nodes = [node for statement in function.body for node in walk(statement, into=False)]
    ends = (ast.Yield, ast.YieldFrom, ast.Raise)
    makes = any(isinstance(n, ends) or (isinstance(n, ast.Return) and n.value) for n in nodes)
    return not makes and all(isinstance(s, ast.Pass) or is_docstring(s) for s in function.body)
