"""Orders definitions: each after what it needs."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from generator.code.caching import cached
from generator.code.tree import parse


def topological_order(needs: Callable[[str], Iterable[str]], names: list[str]) -> list[str]:
    """Returns names and their needs, each name after its needs as far as there is no circle, else in given order."""
    ordered: dict[str, None] = {}
    seen: set[str] = set()

    def visit(name: str) -> None:
        if name not in seen:
            seen.add(name)
            for needed in needs(name):
                visit(needed)
            ordered[name] = None

    for name in names:
        visit(name)
    return list(ordered)


@cached
def names_at_definition(text: str) -> frozenset[str]:
    """Returns the names that Python evaluates when it defines something: annotations, defaults, decorators, bases."""
    names: set[str] = set()
    queue: list[ast.AST] = [parse(text).module]
    while queue:
        node = queue.pop()
        if isinstance(node, ast.Name):
            names.add(node.id)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            parts = [node.args, *getattr(node, "decorator_list", []), getattr(node, "returns", None)]
            queue += filter(None, parts)
        else:
            queue += ast.iter_child_nodes(node)
    return frozenset(names)
