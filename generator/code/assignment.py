"""Definite assignment: which local names have a value on every path to where they are read."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import reduce

from generator.code.tree import children, dotted_name, walk

State = set[str] | None  # the names that have a value, or None after a return or a raise


class DefiniteAssignment:
    """The definitely assigned names of a function.

    Attributes:
        unbound: name and line of each read that may come before the name has a value.
        ends: whether every path ends in a return or a raise.
        bound: the names that have a value at the end of the function.
    """

    def __init__(self, function: ast.FunctionDef | ast.AsyncFunctionDef, names: Iterable[str]):
        parameters = {argument.arg for argument in walk(function.args) if isinstance(argument, ast.arg)}
        self.names = set(names) & parameters.union(*(_stored_names(statement, None) for statement in function.body))
        self.unbound: list[tuple[str, int]] = []
        last = self._block(function.body, parameters & self.names)
        self.ends, self.bound = last is None, self.names if last is None else last

    def _block(self, statements: list[ast.stmt], state: State) -> State:
        for statement in statements:
            if state is None:
                break
            state = self._statement(statement, state)
        return state

    def _statement(self, node: ast.stmt, state: set[str]) -> State:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return state | ({node.name} & self.names)
            case ast.Return() | ast.Raise() | ast.Continue() | ast.Break():
                self._expressions(node, state)
                return None
            case ast.If():
                state = self._expressions(node.test, state)
                return _merge_states(self._block(node.body, state), self._block(node.orelse, state))
            case ast.For() | ast.AsyncFor():
                state = self._expressions(node.iter, state)
                self._block(node.body, state | _stored_names(node.target, self.names))
                return self._block(node.orelse, state) or state
            case ast.While():
                state = self._expressions(node.test, state)
                self._block(node.body, state)
                if isinstance(node.test, ast.Constant) and node.test.value and not _breaks(node.body):
                    return None
                return self._block(node.orelse, state) or state
            case ast.With() | ast.AsyncWith():
                before = state
                for item in node.items:
                    state = self._expressions(item, state)
                after = self._block(node.body, state)
                return _merge_states(after, before) if any(map(_suppresses, node.items)) else after
            case ast.Try() | ast.TryStar():
                handled = [self._block(handler.body, state) for handler in node.handlers]
                result = self._block(node.body, state)
                result = self._block(node.orelse, result) if result is not None else None
                result = reduce(_merge_states, handled, result)
                final = self._block(node.finalbody, state)  # from wherever the rest was left
                return None if final is None or result is None else result | final
            case ast.Match():
                state = self._expressions(node.subject, state)
                branches = [
                    self._block(case.body, state | _stored_names(case.pattern, self.names)) for case in node.cases
                ]
                last = node.cases[-1]
                whole = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None and not last.guard
                return reduce(_merge_states, branches if whole else [*branches, state])
        return self._expressions(node, state)

    def _expressions(self, node: ast.AST, state: set[str]) -> set[str]:
        """Follows reads, then writes: a statement stores last."""
        for name, line in _loaded_names(node):
            if name in self.names and name not in state:
                self.unbound.append((name, line))
        return state | _stored_names(node, self.names)


def _merge_states(first: State, second: State) -> State:
    if first is None or second is None:
        return second if first is None else first
    return first & second


def _breaks(statements: Iterable[ast.AST]) -> bool:
    """Returns whether statements of a loop break out of it."""
    inner = (ast.For, ast.AsyncFor, ast.While, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return any(
        isinstance(node, ast.Break) or _breaks(node.orelse if isinstance(node, inner[:3]) else children(node))
        for node in statements
        if not isinstance(node, inner[3:])
    )


def _suppresses(item: ast.withitem) -> bool:
    """Returns whether a context manager may swallow an error: `with suppress(...)`, `with raises(...)`."""
    called = item.context_expr.func if isinstance(item.context_expr, ast.Call) else item.context_expr
    return dotted_name(called).split(".")[-1] in ("suppress", "raises", "ExitStack")


def _loaded_names(node: ast.AST) -> Iterable[tuple[str, int]]:
    """Yields the names that an expression reads at once, with their lines: lambdas read later."""
    if isinstance(node, ast.Lambda):
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Load, ast.Del)):
        yield node.id, node.lineno
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target.id, node.lineno
    bound = {n for generator in getattr(node, "generators", ()) for n in _stored_names(generator.target, None)}
    for child in children(node):
        yield from ((name, line) for name, line in _loaded_names(child) if name not in bound)


def _stored_names(node: ast.AST, names: set[str] | None) -> set[str]:
    """Returns the names that a node gives a value, except variables of comprehensions."""
    stored: set[str] = set()
    queue: list[tuple[ast.AST, bool]] = [(node, True)]
    while queue:
        part, here = queue.pop()
        if isinstance(part, ast.NamedExpr) and isinstance(part.target, ast.Name):
            stored.add(part.target.id)
        if here and isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            stored.add(part.id)
        if isinstance(part, (ast.MatchAs, ast.MatchStar)) and part.name:
            stored.add(part.name)
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            stored |= {part.name} if here else set()
        elif not isinstance(part, ast.Lambda):
            inside = here and not isinstance(part, ast.comprehension)
            queue += [(child, inside) for child in children(part)]
    return stored if names is None else stored & names
