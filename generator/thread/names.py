"""Names of a package: each means a definition, an import, or a variable, which assignments and parameters bind."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator, Mapping

import libcst as cst

from generator.code import syntax
from generator.code.memory import remembered
from generator.code.scopes import Scope, scopes_of
from generator.code.syntax import Source
from generator.language.parts import Import
from generator.thread.functions import Function, prefix_of

Variable = tuple[Scope | None, str]  # None: known in the whole package
_USUAL = {"nnx": "flax.nnx", "lax": "jax.lax", "partial": "functools.partial"}  # where no import says more
_KEEPING = re.compile(r"append|add|extend|insert|update|set|put|push|register")  # methods that keep what they get
_TARGETED = (cst.AnnAssign, cst.AugAssign, cst.NamedExpr, cst.For, cst.CompFor, cst.Del)
_NAMED = (cst.MatchAs, cst.MatchStar, cst.FunctionDef, cst.ClassDef, cst.Param)
_OTHERS = (cst.Assign, cst.WithItem, cst.ExceptHandler, cst.MatchMapping, cst.Match, cst.Global, cst.Nonlocal, cst.Call)


class Variables:
    """The variables of a text.

    Attributes:
        scopes: of the text.
        standing: each name that is a variable, and the scope in which it stands.
        bound: what binds a variable: an assignment to it alone, its parameter, its function, and so on.
        values: expressions whose values a variable, or something in it, may have.
        binding: the names by which nodes bind.
        assigned: each attribute that is assigned, and the value; None for a part of one.
        kept: each attribute that has, or holds, the value of an expression, and this.
    """

    def __init__(self, module: cst.Module):
        self.scopes = scopes_of(module)
        self.standing = dict(self.scopes.occurrences)
        self.bound: dict[Variable, list[cst.CSTNode]] = {}
        self.values: dict[Variable, list[cst.BaseExpression]] = {}
        self.binding: set[cst.Name] = set()
        self.assigned: list[tuple[cst.Attribute, cst.BaseExpression | None]] = []
        self.kept: list[tuple[cst.Attribute, cst.BaseExpression]] = []
        for node in syntax.below(module, *_TARGETED, *_NAMED, *_OTHERS):
            for name, how in _binders(node):
                if name in self.standing:
                    self.bound.setdefault(self.of(name), []).append(how)
                    self.binding.add(name)
            for target in targets_of(node):
                value = getattr(node, "value", None)
                parts = [part for part in _parts_of(target) if isinstance(part, cst.Attribute)]
                self.assigned += [(part, value if part is target else None) for part in parts]
            for target, value in _values(node):
                self._keep(target, value)
        for alias, scope in self.scopes.imports:
            imported = (alias.evaluated_alias or alias.evaluated_name).split(".")[0]
            self.bound.setdefault(self.seen(imported, scope), []).append(alias)

    def _keep(self, target: cst.CSTNode, value: cst.BaseExpression) -> None:
        holder = root(target)
        if isinstance(holder, cst.Name) and holder in self.standing:
            self.values.setdefault(self.of(holder), []).append(value)
        while isinstance(target, (cst.Subscript, cst.StarredElement)):
            target = target.value
        if isinstance(target, cst.Attribute):
            self.kept.append((target, value))

    def around(self, node: cst.CSTNode) -> Scope:
        """The scope in which an expression stands."""
        return next(self.standing[n] for n in syntax.walk(node) if isinstance(n, cst.Name) and n in self.standing)

    def of(self, name: cst.Name) -> Variable:
        """The variable that a name is."""
        return self.seen(name.value, self.standing[name])

    def seen(self, name: str, scope: Scope) -> Variable:
        """The variable that a name is where it stands in a scope."""
        binder = scope.binder(name)
        return (None if binder is self.scopes.module else binder), name


def targets_of(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """What a node assigns to, or deletes."""
    if isinstance(node, cst.Assign):
        yield from (target.target for target in node.targets)
    elif isinstance(node, cst.WithItem):
        yield from [node.asname.name] if node.asname else []
    elif isinstance(node, _TARGETED):
        yield node.target


def _parts_of(target: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """A target, and the targets in a tuple of them."""
    yield target
    for element in target.elements if isinstance(target, (cst.Tuple, cst.List)) else ():
        yield from _parts_of(element.value)


def root(node: cst.CSTNode) -> cst.CSTNode:
    """`batch` of `batch["k"].x`."""
    while isinstance(node, (cst.Attribute, cst.Subscript, cst.StarredElement)):
        node = node.value
    return node


def _binders(node: cst.CSTNode) -> Iterator[tuple[cst.Name, cst.CSTNode]]:
    """The names that a node binds, each with what says how: the node itself, or a tuple that it is a part of."""
    for target in targets_of(node):
        for part in _parts_of(target):
            if isinstance(part, cst.Name):
                yield part, node if part is target else target
    names: list[cst.CSTNode | None] = []
    if isinstance(node, _NAMED):
        names = [node.name]
    elif isinstance(node, cst.ExceptHandler):
        names = [node.name.name if node.name else None]
    elif isinstance(node, cst.MatchMapping):
        names = [node.rest]
    elif isinstance(node, (cst.Global, cst.Nonlocal)):
        names = [item.name for item in node.names]
    yield from ((name, node) for name in names if isinstance(name, cst.Name))


def _values(node: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression]]:
    """The names, attributes and items that get a value by a node, and the expression that it comes from."""
    if isinstance(node, cst.Match):
        for name in (name for case in node.cases for name in syntax.below(case.pattern, cst.Name)):
            yield name, node.subject
    elif isinstance(node, cst.Call):
        if isinstance(node.func, cst.Attribute) and _KEEPING.match(node.func.attr.value):
            yield from ((node.func.value, argument.value) for argument in node.args)
    elif isinstance(node, cst.Param):
        yield from [(node.name, node.default)] if node.default else []
    else:
        values = [value for field in ("value", "iter", "item") if (value := getattr(node, field, None))]
        yield from ((part, values[0]) for target in targets_of(node) if values for part in _parts_of(target))


@remembered
def variables_of(module: cst.Module) -> Variables:
    return Variables(module)


class Names:
    """Resolves the names in each text of a package.

    Args:
        sources: key -> text, of all definitions.
        functions: id -> function.
        imports: path of a fragment -> the name that an import binds -> the import.
    """

    def __init__(
        self,
        sources: dict[str, Source],
        functions: dict[str, Function],
        imports: Mapping[str, Mapping[str, Import]],
    ):
        self._sources, self._functions, self._imports = sources, functions, imports
        self._imported: dict[str, dict[str, str]] = {}
        self._meanings: dict[tuple[str, cst.CSTNode], str] = {}
        self.texts = {key: variables_of(source.module) for key, source in sources.items()}
        self._nodes: dict[tuple[str, cst.CSTNode], Function] = {(f.key, f.node): f for f in functions.values()}

    def local(self, function: Function, name: str) -> Variable:
        """The variable that a name is in a function."""
        text = self.texts[function.key]
        return text.seen(name, text.scopes.inner[function.node])

    def binds(self, name: cst.Name, key: str) -> list[cst.CSTNode]:
        """What binds the variable that a name is."""
        return self.texts[key].bound.get(self.texts[key].of(name), [])

    def is_variable(self, node: cst.CSTNode, key: str) -> bool:
        """Whether a node is a name that stands for something: not an attribute, not a keyword."""
        return isinstance(node, cst.Name) and node in self.texts[key].standing

    def definition(self, name: cst.CSTNode, key: str) -> str:
        """The key of the definition that a name means, '' for none."""
        if not isinstance(name, cst.Name) or not self.is_variable(name, key):
            return ""
        scope, word = self.texts[key].of(name)
        return "" if scope else next((found for found in (prefix_of(key) + word, word) if found in self._sources), "")

    def is_known(self, name: cst.Name, key: str) -> bool:
        """Whether a name means a definition, what its fragment imports, or what Python has."""
        source = self._sources[key]
        imports = self._imports.get(source.traced.origin_at(source.span(name)[0]).path, {})
        imported = any(imported.alias == name.value for imported in imports.values())
        return imported or bool(self.definition(name, key)) or hasattr(builtins, name.value)

    def functions(self, name: cst.Name, key: str) -> list[Function]:
        """The functions that a name may mean."""
        if self.texts[key].of(name)[0] is None:
            return [f for f in [self._functions.get(self.definition(name, key))] if f]
        return [self._nodes[key, node] for node in self.binds(name, key) if (key, node) in self._nodes]

    def function(self, name: cst.CSTNode, key: str) -> Function | None:
        """The function that a name always means."""
        if not isinstance(name, cst.Name) or not self.is_variable(name, key):
            return None
        found = self.functions(name, key)
        return found[0] if found and (not self.texts[key].of(name)[0] or len(self.binds(name, key)) == 1) else None

    def host(self, name: cst.Name, key: str) -> Function | None:
        """The function whose variable a name is."""
        scope = self.texts[key].of(name)[0]
        return self._nodes.get((key, scope.node)) if scope else None

    def annotations(self, variable: Variable, key: str) -> list[str]:
        """What annotations say that a variable is."""
        found = [getattr(node, "annotation", None) for node in self.texts[key].bound.get(variable, [])]
        return [self._sources[key].code(a.annotation) for a in found if isinstance(a, cst.Annotation)]

    def meaning(self, node: cst.CSTNode, key: str) -> str:
        """`jax.lax.scan` of a name that an import gives that meaning, or that nothing in the package binds; else ''."""
        if (key, node) not in self._meanings:
            self._meanings[key, node] = self._meaning(node, key)
        return self._meanings[key, node]

    def _meaning(self, node: cst.CSTNode, key: str) -> str:
        head = node
        while isinstance(head, cst.Attribute):
            head = head.value
        if not isinstance(head, cst.Name) or not self.is_variable(head, key):
            return ""
        if self.texts[key].of(head)[0] or self.definition(head, key):
            return ""
        if key not in self._imported:
            self._imported[key] = self._read_imports(key)
        word, dot, rest = syntax.dotted(node).partition(".")
        return self._imported[key].get(word, _USUAL.get(word, word)) + dot + rest

    def _read_imports(self, key: str) -> dict[str, str]:
        """What each name that the fragments of a definition import means; the first of those with one name."""
        meanings: dict[str, str] = {}
        for path in self._sources[key].traced.paths():
            for imported in self._imports.get(path, {}).values():
                full = f"{imported.module}.{imported.name}" if imported.name else imported.module
                whole = imported.module.startswith(f"{imported.alias}.")  # `import jax.numpy` binds `jax`
                meanings.setdefault(imported.alias, imported.alias if whole else full)
        return meanings
