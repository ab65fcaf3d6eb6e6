"""Resolves the names of a text to variables, by Python's rules of scope."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from generator.code.caching import cached
from generator.code.tree import FUNCTIONS, Tree, children, parse, walk

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BINDING = frozenset(
    {
        *(ast.Name, *FUNCTIONS, ast.ClassDef, ast.ExceptHandler, ast.alias),
        *(ast.MatchAs, ast.MatchStar, ast.MatchMapping),
    }
)
_SCOPED = _BINDING | {
    *(ast.Lambda, *COMPREHENSIONS, ast.NamedExpr, ast.AnnAssign),
    *(ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal),
}
_CLOSED = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Constant, ast.List, ast.Dict, ast.Set, ast.Tuple)


@dataclass(eq=False)
class Scope:
    """A module, class, function, lambda or comprehension, and the names that it binds itself.

    Attributes:
        outer: names that it declares global or nonlocal.
    """

    node: ast.AST
    parent: Scope | None
    bound: set[str] = field(default_factory=set)
    outer: set[str] = field(default_factory=set)

    @property
    def is_late(self) -> bool:
        """Returns whether code in the scope runs when a function is called, and not at once."""
        own = isinstance(self.node, (*FUNCTIONS, ast.Lambda))
        return own or (self.parent is not None and self.parent.is_late)

    def binder(self, name: str) -> Scope | None:
        """Returns the scope whose variable a name means here, or None where nothing in the text binds it."""
        scope: Scope | None = self
        while scope is not None:
            seen = scope is self or not isinstance(scope.node, ast.ClassDef)  # methods do not see what a class binds
            if seen and name in scope.bound and name not in scope.outer:
                return scope
            scope = scope.parent
        return None


class Occurrence(NamedTuple):
    """A variable that is read, bound or declared.

    Attributes:
        node: the name, or the parameter, definition, handler, pattern or declaration that gives it.
        scope: the one that contains it.
    """

    name: str
    node: ast.AST
    scope: Scope

    @property
    def binder(self) -> Scope | None:
        return self.scope.binder(self.name)


class Scopes:
    """The scopes of a module.

    Attributes:
        module: the scope of the text itself.
        occurrences: of all variables.
        inner: function, lambda, class or comprehension -> its scope.
        imports: each imported name, and the scope that binds it.
        quoted: the annotations in quotes, with their text and scope.
    """

    def __init__(self, module: ast.Module):
        self.module = Scope(module, None)
        self.occurrences: list[Occurrence] = []
        self.quoted: list[tuple[ast.Constant, str, Scope]] = []
        self.inner: dict[ast.AST, Scope] = {}
        self.imports: list[tuple[ast.alias, Scope]] = []
        self._visit_all(module.body, self.module)

    @property
    def bound(self) -> set[str]:
        """The names that are bound at the top."""
        return self.module.bound

    def outside(self) -> set[str]:
        """Returns the names that nothing in the text binds."""
        return {use.name for use in self.occurrences if use.binder is None}

    def _visit_all(self, nodes: Iterable[ast.AST], scope: Scope) -> None:
        for node in nodes:
            self._visit(node, scope)

    def _visit(self, node: ast.AST, scope: Scope) -> None:
        if type(node) not in _SCOPED:  # most are looked through
            self._visit_all(children(node), scope)
            return
        match node:
            case ast.Name():
                if isinstance(node.ctx, ast.Store):
                    scope.bound.add(node.id)
                self.occurrences.append(Occurrence(node.id, node, scope))
                return
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                self._visit_function(node, scope)
                return
            case ast.ClassDef():
                self._bind(node.name, node, scope)
                self._visit_all((*node.decorator_list, *node.bases, *node.keywords), scope)
                self._visit_all(node.body, self._enter(node, scope))
                return
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                inner, first = self._enter(node, scope), node.generators[0]
                self._visit(first.iter, scope)  # the first iterable is read outside
                self._visit_all((first.target, *first.ifs, *node.generators[1:]), inner)
                self._visit_all((n for n in children(node) if not isinstance(n, ast.comprehension)), inner)
                return
            case ast.NamedExpr():  # binds in the function around a comprehension
                outer = scope
                while isinstance(outer.node, COMPREHENSIONS) and outer.parent:
                    outer = outer.parent
                outer.bound.add(node.target.id)
                self.occurrences.append(Occurrence(node.target.id, node.target, scope))
                self._visit(node.value, scope)
                return
            case ast.ImportFrom() if is_role_import(node):
                return
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    self.imports.append((alias, scope))
                    scope.bound.add(imported_name(alias))
            case ast.Global() | ast.Nonlocal():
                scope.outer.update(node.names)
                self.occurrences += [Occurrence(name, node, scope) for name in node.names]
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                self._bind(name, node, scope)
            case ast.MatchMapping(rest=str(name)):
                self._bind(name, node, scope)
            case ast.AnnAssign():
                self._quoted(node.annotation, scope)
        self._visit_all(children(node), scope)

    def _enter(self, node: ast.AST, scope: Scope) -> Scope:
        self.inner[node] = Scope(node, scope)
        return self.inner[node]

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: Scope) -> None:
        inner, arguments = self._enter(node, scope), node.args
        if not isinstance(node, ast.Lambda):
            self._bind(node.name, node, scope)
            self._visit_all(node.decorator_list, scope)
            self._annotation(node.returns, scope)
        for parameter in children(arguments):
            if isinstance(parameter, ast.arg):
                self._bind(parameter.arg, parameter, inner)
                self._annotation(parameter.annotation, scope)
        self._visit_all((*arguments.defaults, *filter(None, arguments.kw_defaults)), scope)
        self._visit_all([node.body] if isinstance(node, ast.Lambda) else node.body, inner)

    def _annotation(self, node: ast.expr | None, scope: Scope) -> None:
        if node is not None:
            self._quoted(node, scope)
            self._visit(node, scope)

    def _quoted(self, annotation: ast.expr, scope: Scope) -> None:
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            self.quoted.append((annotation, annotation.value, scope))

    def _bind(self, name: str, node: ast.AST, scope: Scope) -> None:
        scope.bound.add(name)
        self.occurrences.append(Occurrence(name, node, scope))


@cached
def scopes_of(tree: Tree) -> Scopes:
    return Scopes(tree.module)


@cached
def free_names(text: str) -> tuple[str, ...]:
    """Returns the global names that statements read, builtins too, in order of their first use."""
    scopes = scopes_of(parse(text))
    top, names = scopes.module, [use for use in scopes.occurrences if isinstance(use.node, ast.Name)]
    read = [use for use in names if isinstance(use.node, ast.Name) and isinstance(use.node.ctx, ast.Load)]
    read = [use for use in read if use.binder in (None, top) and (use.scope is not top or use.name not in top.bound)]
    free = {use.name for use in read}
    names.sort(key=lambda use: (use.node.lineno, use.node.col_offset))  # type: ignore[attr-defined]
    quoted = [name for _, annotation, _ in scopes.quoted for name in names_in_quotes(annotation)]
    return tuple(dict.fromkeys([use.name for use in names if use.name in free] + quoted))


def names_in_quotes(annotation: str) -> list[str]:
    """Returns the names in a quoted annotation; nothing if it cannot be parsed as a type."""
    try:
        tree = ast.parse(annotation, mode="eval")
    except (SyntaxError, ValueError):
        return []
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]


def is_role_import(node: ast.AST) -> bool:
    """Returns whether a node imports roles, which are linked by name wherever they are imported: it binds nothing."""
    return isinstance(node, ast.ImportFrom) and node.module == "generator.language.roles"


def imported_name(alias: ast.alias) -> str:
    """Returns the name that an import binds."""
    return alias.asname or alias.name.split(".")[0]


def bound_name(node: ast.AST) -> str | None:
    """Returns the name that a node itself binds, if it is not a parameter."""
    match node:
        case ast.Name(name, ast.Store()) | ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
            return name
        case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
            return name
        case ast.MatchMapping(rest=name):
            return name
        case ast.alias():
            return imported_name(node)
    return None


def bound_names(*nodes: ast.AST, comprehensions: bool = True, parameters: bool = False) -> set[str]:
    """Returns the names that statements bind: by assignment, for, with, import, match, or as a nested function.

    Args:
        comprehensions: whether the variables of comprehensions count, which are known only inside them.
        parameters: whether those of functions and lambdas count, the nodes themselves among them.
    """
    bound, within, roles = list[str](), list[str](), set[ast.AST]()
    for node in walk(*nodes):
        if is_role_import(node):
            roles.update(children(node))
        elif type(node) in _BINDING and node not in roles and (name := bound_name(node)):
            bound.append(name)
        elif isinstance(node, ast.arg) and parameters:
            bound.append(node.arg)
        elif isinstance(node, ast.comprehension) and not comprehensions:
            within += (part.id for part in walk(node.target) if isinstance(part, ast.Name))
    for name in within:
        bound.remove(name)
    return set(bound)


def names_in(*nodes: ast.AST) -> set[str]:
    """Returns the names of all variables that are read, bound or declared below, parameters among them."""
    names = bound_names(*nodes, parameters=True)
    for node in walk(*nodes):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            names.update(node.names)
    return names


def as_operand(text: str) -> str:
    """Returns an expression as an operand: in parentheses, unless it binds tightly already."""
    body = ast.parse(text.strip(), mode="eval").body
    return text if isinstance(body, _CLOSED) or (text.startswith("(") and body.col_offset) else f"({text})"
