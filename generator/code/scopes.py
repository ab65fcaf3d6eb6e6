"""Which variable each name of a text means: Python's rules of scope, over libcst's trees."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import libcst as cst

from generator.code import syntax
from generator.code.memory import remembered
from generator.code.syntax import Source
from generator.code.traced import Edit, Traced

_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)
_TARGETS = (cst.AssignTarget, cst.AnnAssign, cst.AugAssign, cst.For, cst.CompFor)
_SCOPED = frozenset(  # nodes that scopes look at; of others at what is below them
    {
        *(cst.Name, cst.Attribute, cst.Arg, cst.FunctionDef, cst.Lambda, cst.ClassDef, cst.Import, cst.ImportFrom),
        *(cst.Global, cst.Nonlocal, cst.NamedExpr, cst.AsName, cst.MatchKeywordElement, cst.MatchAs, cst.MatchStar),
        *(cst.MatchMapping, *_COMPREHENSIONS, *_TARGETS),
    }
)


@dataclass(eq=False)
class Scope:
    """A module, class, function, lambda or comprehension, and the names that it binds itself."""

    node: cst.CSTNode
    parent: Scope | None
    bound: set[str] = field(default_factory=set)
    outer: set[str] = field(default_factory=set)  # declared global or nonlocal

    @property
    def is_late(self) -> bool:
        """Whether what stands here is read when a function is called."""
        own = isinstance(self.node, (cst.FunctionDef, cst.Lambda))
        return own or (self.parent is not None and self.parent.is_late)

    def binder(self, name: str) -> Scope | None:
        """The scope whose variable a name means here, or None where nothing in the text binds it."""
        scope: Scope | None = self
        while scope is not None:
            seen = scope is self or not isinstance(scope.node, cst.ClassDef)  # what a class binds its methods don't see
            if seen and name in scope.bound and name not in scope.outer:
                return scope
            scope = scope.parent
        return None


class Scopes:
    """The scopes of a module.

    Attributes:
        occurrences: each name that is a variable, where it is bound too, and the scope in which it stands.
        inner: the scope that each function, lambda, class and comprehension is.
        imports: what is imported, and the scope that binds it.
        quoted: annotations in quotes, and the scopes in which they stand.
    """

    def __init__(self, module: cst.Module):
        self.module = Scope(module, None)
        self.occurrences: list[tuple[cst.Name, Scope]] = []
        self.quoted: list[tuple[cst.SimpleString, Scope]] = []
        self.inner: dict[cst.CSTNode, Scope] = {}
        self.imports: list[tuple[cst.ImportAlias, Scope]] = []
        self._visit_all(syntax.children(module), self.module)

    def meant(self) -> Iterator[tuple[cst.Name, Scope | None]]:
        """Each name that is a variable, and the scope that binds it; None for a name from outside the text."""
        return ((name, scope.binder(name.value)) for name, scope in self.occurrences)

    def _visit_all(self, nodes: Iterable[cst.CSTNode], scope: Scope) -> None:
        for node in nodes:
            self._visit(node, scope)

    def _visit(self, node: cst.CSTNode, scope: Scope) -> None:
        if type(node) not in _SCOPED:  # isinstance takes long for libcst's nodes
            self._visit_all(syntax.children(node), scope)
        elif isinstance(node, cst.Name):
            self.occurrences.append((node, scope))
        elif isinstance(node, (cst.Attribute, cst.Arg)):
            self._visit(node.value, scope)
        elif isinstance(node, (cst.FunctionDef, cst.Lambda)):
            self._visit_function(node, scope)
        elif isinstance(node, cst.ClassDef):
            self._bind(node.name, scope)
            self._visit_all((*node.decorators, *node.bases, *node.keywords), scope)
            self._visit(node.body, self._inside(node, scope))
        elif isinstance(node, _COMPREHENSIONS):
            inner = self._inside(node, scope)
            self._visit(node.for_in.iter, scope)  # the first iterable is read outside
            self._visit_all((child for child in syntax.children(node) if child is not node.for_in), inner)
            self._visit_loop(node.for_in, inner, first=True)
        elif isinstance(node, (cst.Import, cst.ImportFrom)):
            if not isinstance(node.names, cst.ImportStar):
                self._visit_imports(node.names, scope)
        elif isinstance(node, cst.MatchKeywordElement):
            self._visit(node.pattern, scope)
        elif isinstance(node, (cst.Global, cst.Nonlocal)):
            names = [item.name for item in node.names]
            scope.outer |= {name.value for name in names}
            self._visit_all(names, scope)
        else:
            self._bind_by(node, scope)
            self._visit_all(syntax.children(node), scope)

    def _inside(self, node: cst.CSTNode, scope: Scope) -> Scope:
        self.inner[node] = Scope(node, scope)
        return self.inner[node]

    def _visit_imports(self, aliases: Iterable[cst.ImportAlias], scope: Scope) -> None:
        for alias in aliases:
            self.imports.append((alias, scope))
            if alias.asname:
                self._bind_by(alias.asname, scope)
            else:
                scope.bound.add(alias.evaluated_name.split(".")[0])

    def _visit_function(self, node: cst.FunctionDef | cst.Lambda, scope: Scope) -> None:
        inner = self._inside(node, scope)
        if isinstance(node, cst.FunctionDef):
            self._bind(node.name, scope)
            self._visit_all(node.decorators, scope)
            if node.returns:
                self._annotation(node.returns, scope)
        for child in syntax.walk(node.params):
            if isinstance(child, cst.Param):
                self._bind(child.name, inner)
                if child.annotation:
                    self._annotation(child.annotation, scope)
                if child.default:
                    self._visit(child.default, scope)
        self._visit(node.body, inner)

    def _visit_loop(self, loop: cst.CompFor, scope: Scope, first: bool = False) -> None:
        scope.bound |= set(_targets(loop.target))
        if not first:
            self._visit(loop.iter, scope)
        self._visit_all((loop.target, *loop.ifs), scope)
        if loop.inner_for_in:
            self._visit_loop(loop.inner_for_in, scope)

    def _annotation(self, node: cst.Annotation, scope: Scope) -> None:
        for child in syntax.walk(node):
            if isinstance(child, cst.SimpleString):
                self.quoted.append((child, scope))
        self._visit(node.annotation, scope)

    def _bind(self, name: cst.Name, scope: Scope) -> None:
        scope.bound.add(name.value)
        self.occurrences.append((name, scope))

    def _bind_by(self, node: cst.CSTNode, scope: Scope) -> None:
        """What a statement or a part of a pattern binds; the names themselves are visited after it."""
        if isinstance(node, _TARGETS):
            scope.bound |= set(_targets(node.target))
        elif isinstance(node, cst.NamedExpr):  # binds in the function around a comprehension
            while isinstance(scope.node, _COMPREHENSIONS) and scope.parent:
                scope = scope.parent
            scope.bound |= set(_targets(node.target))
        elif isinstance(node, (cst.AsName, cst.MatchAs, cst.MatchStar)) and node.name:
            scope.bound |= set(_targets(node.name))
        elif isinstance(node, cst.MatchMapping) and node.rest:
            scope.bound.add(node.rest.value)
        if isinstance(node, cst.AnnAssign):
            self.quoted += [(n, scope) for n in syntax.walk(node.annotation) if isinstance(n, cst.SimpleString)]


def _targets(target: cst.CSTNode) -> Iterator[str]:
    """The names that an assignment to a target binds: not those of `a.b` and `a[b]`."""
    if isinstance(target, cst.Name):
        yield target.value
    elif isinstance(target, (cst.Tuple, cst.List)):
        for element in target.elements:
            yield from _targets(element.value)


@remembered
def scopes_of(module: cst.Module) -> Scopes:
    return Scopes(module)


def rename(source: Source, new: Callable[[str], str | None]) -> list[Edit]:
    """Edits that give other names to what a text reads from outside, or binds at its top; in quoted annotations too.

    Args:
        new: the name that takes the place of one, or None.
    """
    scopes, edits = scopes_of(source.module), []
    for name, scope in scopes.occurrences:
        other = new(name.value)
        if other and scope.binder(name.value) in (None, scopes.module):
            edits.append(_replace(source, *source.span(name), other))
    for string, scope in scopes.quoted:
        start, end = source.span(string)
        for place, word in _quoted_names(source.text[start:end]):
            other = new(word)
            if other and scope.binder(word) in (None, scopes.module):
                edits.append(_replace(source, start + place, start + place + len(word), other))
    return edits


def _replace(source: Source, start: int, end: int, new: str) -> Edit:
    return Edit(start, end, Traced.insert(new, source.traced.origin_at(start)))


def _quoted_names(string: str) -> list[tuple[int, str]]:
    """The names in an annotation in plain quotes, and where they stand in it; none in what is no type."""
    try:
        tree = ast.parse(string[1:-1], mode="eval")
    except (SyntaxError, ValueError):
        return []
    return [
        (node.col_offset + 1, node.id) for node in ast.walk(tree) if isinstance(node, ast.Name) and string.isascii()
    ]
