"""Which variable each name of a text means: Python's rules of scope, over its tree."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from generator.code.caching import cached
from generator.code.traced import Edit
from generator.code.tree import FUNCTIONS, TracedTree, Tree, children, parse, walk

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
_OPEN = (ast.Lambda, ast.NamedExpr, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.FormattedValue)  # need none around them
_LISTING = (ast.Call, ast.Compare)
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
        """Whether what stands here is read when a function is called."""
        own = isinstance(self.node, (*FUNCTIONS, ast.Lambda))
        return own or (self.parent is not None and self.parent.is_late)

    def binder(self, name: str) -> Scope | None:
        """The scope whose variable a name means here, or None where nothing in the text binds it."""
        scope: Scope | None = self
        while scope is not None:
            seen = scope is self or not isinstance(scope.node, ast.ClassDef)  # methods do not see what a class binds
            if seen and name in scope.bound and name not in scope.outer:
                return scope
            scope = scope.parent
        return None


class Occurrence(NamedTuple):
    """A name that is a variable, where it is bound too.

    Attributes:
        node: the name, or the parameter, definition, handler, pattern or declaration that gives it.
        scope: in which it stands.
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
        occurrences: of all names that are variables.
        inner: the scope that each function, lambda, class and comprehension is.
        imports: what is imported, and the scope that binds it.
        quoted: annotations that are in quotes, what the quotes hold, and the scopes in which they stand.
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
        """The names that statements bind at the top."""
        return self.module.bound

    def outside(self) -> set[str]:
        """The names that nothing in the text binds."""
        return {found.name for found in self.occurrences if found.binder is None}

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
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    self.imports.append((alias, scope))
                    scope.bound.add(imported(alias))
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
    """The global names that statements read, builtins too, in order of their first use."""
    scopes = scopes_of(parse(text))
    read = [it for it in scopes.occurrences if isinstance(it.node, ast.Name) and isinstance(it.node.ctx, ast.Load)]
    top = scopes.module
    found = {it.name for it in read if (it.binder or top) is top and (it.scope is not top or it.name not in top.bound)}
    names = [it for it in scopes.occurrences if isinstance(it.node, ast.Name) and it.name in found]
    names.sort(key=lambda it: (it.node.lineno, it.node.col_offset))  # type: ignore[attr-defined]
    quoted = [name for _, held, _ in scopes.quoted for _, name in _names_in_quotes(held)]
    return tuple(dict.fromkeys([it.name for it in names] + quoted))


def _names_in_quotes(annotation: str) -> list[tuple[int, str]]:
    """Returns the names in a quoted annotation with their offsets; nothing if it cannot be parsed as a type."""
    try:
        tree = ast.parse(annotation, mode="eval")
    except (SyntaxError, ValueError):
        return []
    return [(node.col_offset, node.id) for node in ast.walk(tree) if isinstance(node, ast.Name)]


def rename(source: TracedTree, new: Callable[[str], str | None]) -> list[Edit]:
    """Edits that give other names to what a text reads from outside, or binds at its top; in quoted annotations too.

    Args:
        new: the name that takes the place of one, or None.
    """
    scopes, edits = scopes_of(source.tree), []
    for name, node, scope in scopes.occurrences:
        other = new(name)
        if other and scope.binder(name) in (None, scopes.module):
            start, end = source.tree.span_of_name(node, name)
            edits.append(Edit(start, end, source.inserted(other, start)))
    for string, held, scope in scopes.quoted:
        start, written = source.span(string)[0], source.code(string)
        for column, name in _names_in_quotes(held) if written.isascii() and written[0] in "\"'" else ():
            other, at = new(name), start + 1 + column
            if other and scope.binder(name) in (None, scopes.module):
                edits.append(Edit(at, at + len(name), source.inserted(other, at)))
    return edits


def imported(alias: ast.alias) -> str:
    """The name that an import binds."""
    return alias.asname or alias.name.split(".")[0]


def bound_by(node: ast.AST) -> str | None:
    """The name that a node itself binds, a parameter not among them."""
    match node:
        case ast.Name(name, ast.Store()) | ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
            return name
        case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
            return name
        case ast.MatchMapping(rest=name):
            return name
        case ast.alias():
            return imported(node)
    return None


def bound_names(*nodes: ast.AST, comprehensions: bool = True) -> set[str]:
    """The names that statements bind: by assignment, for, with, import, match, or as a nested function.

    Args:
        comprehensions: whether the variables of comprehensions count, which are known only inside them.
    """
    bound, within = list[str](), list[str]()
    for node in walk(*nodes):
        if type(node) in _BINDING and (name := bound_by(node)):
            bound.append(name)
        elif isinstance(node, ast.comprehension) and not comprehensions:
            within += (part.id for part in walk(node.target) if isinstance(part, ast.Name))
    for name in within:
        bound.remove(name)
    return set(bound)


def inner_parameters(*nodes: ast.AST) -> set[str]:
    """The parameters of all functions and lambdas below, and of the nodes themselves."""
    return {node.arg for node in walk(*nodes) if isinstance(node, ast.arg)}


def names_in(*nodes: ast.AST) -> set[str]:
    """The names of all variables that are read, bound or declared below, parameters among them."""
    read = set[str]()
    for node in walk(*nodes):
        if isinstance(node, ast.Name):
            read.add(node.id)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            read.update(node.names)
    return read | bound_names(*nodes) | inner_parameters(*nodes)


def operand(text: str) -> str:
    """An expression in a form that can stand anywhere: in parentheses, unless it is one operand already."""
    body = ast.parse(text.strip(), mode="eval").body
    return text if isinstance(body, _CLOSED) or (text.startswith("(") and body.col_offset) else f"({text})"


def in_place(text: str, node: ast.AST, parent: ast.AST) -> str:
    """An expression in the place of a node: in parentheses where the one around it needs them."""
    apart = [*getattr(parent, "args", ()), *getattr(parent, "comparators", ())] if isinstance(parent, _LISTING) else []
    if not isinstance(parent, ast.expr) or isinstance(parent, _OPEN) or node in [*apart, getattr(parent, "slice", 0)]:
        return text
    return operand(text)
