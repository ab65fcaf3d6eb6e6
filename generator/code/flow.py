"""Which local names have a value where they are read, on every path through a function."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import reduce

State = set[str] | None  # the names that have a value, or None after a return or a raise


class Flow:
    """Follows the statements of a function.

    Attributes:
        unbound: name and line of each read that may come before the name has a value.
        ends: whether every path ends in a return or a raise.
        bound: the names that have a value where one comes to its end.
    """

    def __init__(self, function: ast.FunctionDef | ast.AsyncFunctionDef, names: Iterable[str]):
        parameters = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
        self.names = set(names) & parameters.union(*(_stored(statement, None) for statement in function.body))
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
                return _join(self._block(node.body, state), self._block(node.orelse, state))
            case ast.For() | ast.AsyncFor():
                state = self._expressions(node.iter, state)
                self._block(node.body, state | _stored(node.target, self.names))
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
                return _join(after, before) if any(map(_suppresses, node.items)) else after
            case ast.Try() | ast.TryStar():
                handled = [self._block(handler.body, state) for handler in node.handlers]
                result = self._block(node.body, state)
                result = self._block(node.orelse, result) if result is not None else None
                result = reduce(_join, handled, result)
                final = self._block(node.finalbody, state)  # from wherever the rest was left
                return None if final is None or result is None else result | final
            case ast.Match():
                state = self._expressions(node.subject, state)
                every = [self._block(case.body, state | _stored(case.pattern, self.names)) for case in node.cases]
                last = node.cases[-1]
                whole = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None and not last.guard
                return reduce(_join, every if whole else [*every, state])
        return self._expressions(node, state)

    def _expressions(self, node: ast.AST, state: set[str]) -> set[str]:
        """Reads come before writes: what a statement stores, it stores last."""
        for name, line in _loaded(node):
            if name in self.names and name not in state:
                self.unbound.append((name, line))
        return state | _stored(node, self.names)


def _join(first: State, second: State) -> State:
    if first is None or second is None:
        return second if first is None else first
    return first & second


def _breaks(statements: Iterable[ast.AST]) -> bool:
    """Whether a `break` of a loop is among its statements."""
    inner = (ast.For, ast.AsyncFor, ast.While, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return any(
        isinstance(node, ast.Break)
        or _breaks(node.orelse if isinstance(node, inner[:3]) else ast.iter_child_nodes(node))
        for node in statements
        if not isinstance(node, inner[3:])
    )


def _suppresses(item: ast.withitem) -> bool:
    """Whether a block may be left by an error that goes no further: `with suppress(...)`, `with raises(...)`."""
    called = item.context_expr.func if isinstance(item.context_expr, ast.Call) else item.context_expr
    return ast.unparse(called).split(".")[-1] in ("suppress", "raises", "ExitStack")


def _loaded(node: ast.AST) -> Iterable[tuple[str, int]]:
    """The names that an expression reads at once: what lambdas read comes later."""
    if isinstance(node, ast.Lambda):
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Load, ast.Del)):
        yield node.id, node.lineno
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target.id, node.lineno
    bound = {n for generator in getattr(node, "generators", ()) for n in _stored(generator.target, None)}
    for child in ast.iter_child_nodes(node):
        yield from ((name, line) for name, line in _loaded(child) if name not in bound)


def _stored(node: ast.AST, names: set[str] | None) -> set[str]:
    """The names that a node gives a value: not those of a comprehension, which are known inside it alone."""
    found: set[str] = set()
    queue: list[tuple[ast.AST, bool]] = [(node, True)]
    while queue:
        part, here = queue.pop()
        if isinstance(part, ast.NamedExpr) and isinstance(part.target, ast.Name):
            found.add(part.target.id)
        if here and isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            found.add(part.id)
        if isinstance(part, (ast.MatchAs, ast.MatchStar)) and part.name:
            found.add(part.name)
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found |= {part.name} if here else set()
        elif not isinstance(part, ast.Lambda):
            inside = here and not isinstance(part, ast.comprehension)
            queue += [(child, inside) for child in ast.iter_child_nodes(part)]
    return found if names is None else found & names
