"""Names of a package: each means a definition, an import, or a variable, which assignments and parameters bind."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Mapping

from generator.code.bindings import Occurrence, Scope, imported, scopes_of
from generator.code.caching import cached
from generator.code.tree import TracedTree, Tree, dotted_name, walk
from generator.language.parts import Import
from generator.thread.functions import Function, arguments, defaults_of, prefix_of

Variable = tuple[Scope | None, str]  # None: known in the whole package
_USUAL = {"nnx": "flax.nnx", "lax": "jax.lax", "partial": "functools.partial"}  # where no import says more
_TARGETED = (ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For, ast.AsyncFor, ast.comprehension)
_GIVING = (*_TARGETED, ast.Assign, ast.Delete, ast.withitem, ast.Match, ast.Call, ast.arguments)
_CAPTURES = (ast.MatchAs, ast.MatchStar, ast.MatchMapping)
_KEEPING = re.compile(r"append|add|extend|insert|update|set|put|push|register")  # methods that keep what they get


class Variables:
    """The variables of a text.

    Attributes:
        nodes: all of the text.
        scopes: of the text.
        standing: each node that is or gives a name, and its occurrence.
        bound: what binds a variable: an assignment to it alone, its parameter, its function, and so on.
        values: expressions whose values a variable, or something in it, may have.
        binding: the nodes that bind names.
        assigned: each attribute that is assigned, and the value; None for a part of one.
        kept: each attribute that has, or holds, the value of an expression, and this.
    """

    def __init__(self, tree: Tree):
        self.nodes, self.scopes = (*walk(tree.module),), scopes_of(tree)
        self.standing = {found.node: found for found in self.scopes.occurrences}
        self.bound: dict[Variable, list[ast.AST]] = {}
        self.values: dict[Variable, list[ast.expr]] = {}
        self.binding: set[ast.AST] = set()
        self.assigned: list[tuple[ast.Attribute, ast.expr | None]] = []
        self.kept: list[tuple[ast.Attribute, ast.expr]] = []
        binders: dict[ast.AST, ast.AST] = {}  # target -> the node that assigns to it, or the tuple that it is a part of
        for node in (node for node in self.nodes if isinstance(node, _GIVING)):
            for target in targets_of(node):
                for part in parts_of(target):
                    binders[part] = node if part is target else target
                    if isinstance(part, ast.Attribute):
                        self.assigned.append((part, getattr(node, "value", None) if part is target else None))
            for holder, value in _values(node):
                self._keep(holder, value)
        for found in self.scopes.occurrences:
            if found.node in binders or not isinstance(found.node, ast.Name):
                self.bound.setdefault(self.of(found), []).append(binders.get(found.node, found.node))
                self.binding.add(found.node)
        for alias, scope in self.scopes.imports:
            self.bound.setdefault(self.seen(imported(alias), scope), []).append(alias)

    def _keep(self, target: ast.AST, value: ast.expr) -> None:
        if (holder := root(target)) in self.standing:
            self.values.setdefault(self.of(holder), []).append(value)
        while isinstance(target, (ast.Subscript, ast.Starred)):
            target = target.value
        if isinstance(target, ast.Attribute):
            self.kept.append((target, value))

    def around(self, node: ast.AST) -> Scope:
        """The scope in which an expression stands."""
        return next(self.standing[name].scope for name in walk(node) if name in self.standing)

    def of(self, name: ast.AST | Occurrence) -> Variable:
        """The variable that a name is."""
        found = name if isinstance(name, Occurrence) else self.standing[name]
        return self.seen(found.name, found.scope)

    def seen(self, name: str, scope: Scope) -> Variable:
        """The variable that a name is where it stands in a scope."""
        binder = scope.binder(name)
        return (None if binder is self.scopes.module else binder), name


def targets_of(node: ast.AST) -> list[ast.expr]:
    """What a node assigns to, or deletes."""
    match node:
        case ast.Assign() | ast.Delete():
            return node.targets
        case ast.AnnAssign() | ast.AugAssign() | ast.NamedExpr() | ast.For() | ast.AsyncFor() | ast.comprehension():
            return [node.target]
        case ast.withitem(optional_vars=ast.expr() as target):
            return [target]
    return []


def parts_of(target: ast.expr) -> Iterator[ast.expr]:
    """A target, and the targets in a tuple of them."""
    yield target
    for element in target.elts if isinstance(target, (ast.Tuple, ast.List)) else ():
        yield from parts_of(element.value if isinstance(element, ast.Starred) else element)


def root(node: ast.AST) -> ast.AST:
    """`batch` of `batch["k"].x`."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        node = node.value
    return node


def _values(node: ast.AST) -> Iterator[tuple[ast.AST, ast.expr]]:
    """The names, attributes and items that get a value by a node, and the expression that it comes from."""
    match node:
        case ast.Match(subject, cases):
            patterns = walk(*(case.pattern for case in cases))
            yield from ((part, subject) for part in patterns if isinstance(part, _CAPTURES))
        case ast.Call(ast.Attribute(owner, method)):
            yield from ((owner, value) for value in arguments(node) if _KEEPING.match(method))
        case ast.arguments():
            yield from defaults_of(node).items()
        case _:
            values = (getattr(node, field, None) for field in ("value", "iter", "context_expr"))
            value = next(filter(None, values), None)
            yield from ((part, value) for target in targets_of(node) if value for part in parts_of(target))


@cached
def variables_of(tree: Tree) -> Variables:
    return Variables(tree)


class Names:
    """Resolves the names in each text of a package.

    Args:
        sources: key -> text, of all definitions.
        functions: id -> function.
        imports: path of a fragment -> the name that an import binds -> the import.
    """

    def __init__(
        self,
        sources: dict[str, TracedTree],
        functions: dict[str, Function],
        imports: Mapping[str, Mapping[str, Import]],
    ):
        self._sources, self._functions, self._imports = sources, functions, imports
        self._meanings: dict[tuple[str, ast.AST], str] = {}
        self.texts = {key: variables_of(source.tree) for key, source in sources.items()}
        self._nodes: dict[tuple[str, ast.AST], Function] = {(f.key, f.node): f for f in functions.values()}
        self._imported = {key: self._read_imports(source) for key, source in sources.items()}

    def local(self, function: Function, name: str) -> Variable:
        """The variable that a name is in a function."""
        text = self.texts[function.key]
        return text.seen(name, text.scopes.inner[function.node])

    def binds(self, variable: Variable, key: str) -> list[ast.AST]:
        """What binds a variable."""
        return self.texts[key].bound.get(variable, [])

    def definition(self, node: ast.AST, key: str) -> str:
        """The key of the definition that a name means, '' for none."""
        return self._definition(self.texts[key].of(node), key) if isinstance(node, ast.Name) else ""

    def _definition(self, variable: Variable, key: str) -> str:
        scope, word = variable
        return "" if scope else next((found for found in (prefix_of(key) + word, word) if found in self._sources), "")

    def is_known(self, found: Occurrence, key: str) -> bool:
        """Whether a name means a definition, what its fragment imports, or what Python has."""
        source, text = self._sources[key], self.texts[key]
        imports = self._imports.get(source.traced.origin_at(source.span(found.node)[0]).path, {})
        is_imported = any(imported.alias == found.name for imported in imports.values())
        return is_imported or bool(self._definition(text.of(found), key)) or hasattr(builtins, found.name)

    def functions(self, variable: Variable, key: str) -> list[Function]:
        """The functions that a name may mean."""
        if variable[0] is None:
            return [f for f in [self._functions.get(self._definition(variable, key))] if f]
        return [self._nodes[key, node] for node in self.binds(variable, key) if (key, node) in self._nodes]

    def function(self, node: ast.AST, key: str) -> Function | None:
        """The function that a name always means."""
        if not isinstance(node, ast.Name):
            return None
        variable = self.texts[key].of(node)
        found = self.functions(variable, key)
        return found[0] if found and (not variable[0] or len(self.binds(variable, key)) == 1) else None

    def host(self, variable: Variable, key: str) -> Function | None:
        """The function of a variable."""
        return self._nodes.get((key, variable[0].node)) if variable[0] else None

    def annotations(self, variable: Variable, key: str) -> list[str]:
        """What annotations say that a variable is."""
        found = [getattr(node, "annotation", None) for node in self.binds(variable, key)]
        return [self._sources[key].code(annotation) for annotation in found if annotation]

    def meaning(self, node: ast.AST, key: str) -> str:
        """`jax.lax.scan` of a name that an import gives that meaning, or that nothing in the package binds; else ''."""
        if (key, node) not in self._meanings:
            self._meanings[key, node] = self._meaning(node, key)
        return self._meanings[key, node]

    def _meaning(self, node: ast.AST, key: str) -> str:
        head = node
        while isinstance(head, ast.Attribute):
            head = head.value
        if not isinstance(head, ast.Name) or self.texts[key].of(head)[0] or self.definition(head, key):
            return ""
        word, dot, rest = dotted_name(node).partition(".")
        return self._imported[key].get(word, _USUAL.get(word, word)) + dot + rest

    def _read_imports(self, source: TracedTree) -> dict[str, str]:
        """What each name that the fragments of a definition import means; the first of those with one name."""
        meanings: dict[str, str] = {}
        for path in source.traced.paths():
            for found in self._imports.get(path, {}).values():
                full = f"{found.module}.{found.name}" if found.name else found.module
                whole = found.module.startswith(f"{found.alias}.")  # `import jax.numpy` binds `jax`
                meanings.setdefault(found.alias, found.alias if whole else full)
        return meanings
