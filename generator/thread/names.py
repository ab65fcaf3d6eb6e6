"""Resolves the names of a package: each refers to a definition, an import or a variable."""

from __future__ import annotations

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from generator.code.bindings import Occurrence, Scope, imported_name, scopes_of
from generator.code.caching import cached
from generator.code.tree import TracedTree, Tree, dotted_name, walk
from generator.language.parts import Import
from generator.thread.functions import Function, arguments, module_prefix, read_defaults

Variable = tuple[Scope | None, str]  # its scope, None for the module's, and its name
_DEFAULT_IMPORTS = {"nnx": "flax.nnx", "lax": "jax.lax", "partial": "functools.partial"}  # of names without an import
CAPTURES = (ast.MatchAs, ast.MatchStar, ast.MatchMapping)  # patterns that bind a name
_STORING = re.compile(r"append|add|extend|insert|update|set|put|push|register")  # methods that store their arguments


class Variables:
    """The variables of a text.

    Attributes:
        nodes: all nodes of the text.
        scopes: the scopes of the text.
        occurrences: each node that is or binds a name, and its occurrence.
        bindings: variable -> the nodes that bind it: an assignment to it alone, a tuple of targets, a parameter, ...
        values: variable -> expressions whose values it, or something in it, may have.
        binding_nodes: the nodes that bind names.
        assigned: each attribute that is assigned, and the value; None for a part of one.
        stored: each attribute that is, or contains, the value of an expression, and this expression.
    """

    def __init__(self, tree: Tree):
        self.nodes, self.scopes = (*walk(tree.module),), scopes_of(tree)
        self.occurrences = {occurrence.node: occurrence for occurrence in self.scopes.occurrences}
        self.bindings: dict[Variable, list[ast.AST]] = defaultdict(list)
        self.values: dict[Variable, list[ast.expr]] = defaultdict(list)
        self.binding_nodes: set[ast.AST] = set()
        self.assigned: list[tuple[ast.Attribute, ast.expr | None]] = []
        self.stored: list[tuple[ast.Attribute, ast.expr]] = []
        binders: dict[ast.AST, ast.AST] = {}  # target -> the node that assigns to it, or the tuple that contains it
        for node in self.nodes:
            for target in targets_of(node):
                value = next((v for f in ("value", "iter", "context_expr") if (v := getattr(node, f, None))), None)
                for part in parts_of(target):
                    binders[part] = node if part is target else target
                    if isinstance(part, ast.Attribute):
                        self.assigned.append((part, getattr(node, "value", None) if part is target else None))
                    if value:
                        self._store(part, value)
            match node:
                case ast.Call(ast.Attribute(owner, method)) if _STORING.match(method):
                    for argument in arguments(node):
                        self._store(owner, argument)
                case ast.arguments():
                    for parameter, default in read_defaults(node).items():
                        self._store(parameter, default)
        for occurrence in self.scopes.occurrences:
            if occurrence.node in binders or not isinstance(occurrence.node, ast.Name):
                self.bindings[self.variable(occurrence)].append(binders.get(occurrence.node, occurrence.node))
                self.binding_nodes.add(occurrence.node)
        for alias, scope in self.scopes.imports:
            self.bindings[self.lookup(imported_name(alias), scope)].append(alias)

    def _store(self, target: ast.AST, value: ast.expr) -> None:
        if (head := root(target)) in self.occurrences:
            self.values[self.variable(head)].append(value)
        while isinstance(target, (ast.Subscript, ast.Starred)):
            target = target.value
        if isinstance(target, ast.Attribute):
            self.stored.append((target, value))

    def scope_of(self, node: ast.AST) -> Scope:
        """Returns the scope of the first name in an expression."""
        return next(self.occurrences[name].scope for name in walk(node) if name in self.occurrences)

    def variable(self, name: ast.AST | Occurrence) -> Variable:
        """Returns the variable to which a name refers."""
        occurrence = name if isinstance(name, Occurrence) else self.occurrences[name]
        return self.lookup(occurrence.name, occurrence.scope)

    def lookup(self, name: str, scope: Scope) -> Variable:
        """Returns the variable to which a name in a scope refers."""
        binder = scope.binder(name)
        return (None if binder is self.scopes.module else binder), name


def targets_of(node: ast.AST) -> list[ast.expr]:
    """Returns the targets that a node assigns or deletes."""
    match node:
        case ast.Assign() | ast.Delete():
            return node.targets
        case ast.AnnAssign() | ast.AugAssign() | ast.NamedExpr() | ast.For() | ast.AsyncFor() | ast.comprehension():
            return [node.target]
        case ast.withitem(optional_vars=ast.expr() as target):
            return [target]
    return []


def parts_of(target: ast.expr) -> Iterator[ast.expr]:
    """Yields a target, and the targets in it if it is a tuple."""
    yield target
    for element in target.elts if isinstance(target, (ast.Tuple, ast.List)) else ():
        yield from parts_of(element.value if isinstance(element, ast.Starred) else element)


def root(node: ast.AST) -> ast.AST:
    """Returns `batch` of `batch["k"].x`."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        node = node.value
    return node


@cached
def variables_of(tree: Tree) -> Variables:
    return Variables(tree)


class Names:
    """Resolves the names in each text of a package. Where a method takes a `key`, this is the text of the name.

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
        self.texts = {key: variables_of(source.tree) for key, source in sources.items()}
        self._functions_by_node: dict[tuple[str, ast.AST], Function] = {(f.key, f.node): f for f in functions.values()}
        self._imported = {key: self._read_imports(source) for key, source in sources.items()}

    def local(self, function: Function, name: str) -> Variable:
        """Returns the variable to which a name in a function refers."""
        text = self.texts[function.key]
        return text.lookup(name, text.scopes.inner[function.node])

    def bindings(self, variable: Variable, key: str) -> list[ast.AST]:
        """Returns the nodes that bind a variable."""
        return self.texts[key].bindings.get(variable, [])

    def definition(self, node: ast.AST, key: str) -> str:
        """Returns the key of the definition to which a name refers, else ''."""
        return self._definition(self.texts[key].variable(node), key) if isinstance(node, ast.Name) else ""

    def _definition(self, variable: Variable, key: str) -> str:
        scope, name = variable
        return "" if scope else next((k for k in (module_prefix(key) + name, name) if k in self._sources), "")

    def is_global(self, occurrence: Occurrence, key: str) -> bool:
        """Returns whether a name refers to a definition, an import of its fragment, or a builtin."""
        source, text = self._sources[key], self.texts[key]
        imports = self._imports.get(source.origin(occurrence.node).path, {})
        is_imported = any(imported.alias == occurrence.name for imported in imports.values())
        return (
            is_imported or bool(self._definition(text.variable(occurrence), key)) or hasattr(builtins, occurrence.name)
        )

    def functions(self, variable: Variable, key: str) -> list[Function]:
        """Returns the functions to which a variable may refer."""
        if variable[0] is None:
            return [f for f in [self._functions.get(self._definition(variable, key))] if f]
        nodes = self._functions_by_node
        return [nodes[key, node] for node in self.bindings(variable, key) if (key, node) in nodes]

    def function(self, node: ast.AST, key: str) -> Function | None:
        """Returns the function to which a name always refers, else None."""
        if not isinstance(node, ast.Name):
            return None
        variable = self.texts[key].variable(node)
        functions = self.functions(variable, key)
        return functions[0] if functions and (not variable[0] or len(self.bindings(variable, key)) == 1) else None

    def host(self, variable: Variable, key: str) -> Function | None:
        """Returns the function that has a variable, None for a variable of another scope."""
        return self._functions_by_node.get((key, variable[0].node)) if variable[0] else None

    def annotations(self, variable: Variable, key: str) -> list[str]:
        """Returns the annotations of a variable."""
        annotations = (getattr(node, "annotation", None) for node in self.bindings(variable, key))
        return [self._sources[key].code(annotation) for annotation in annotations if annotation]

    def meaning(self, node: ast.AST, key: str) -> str:
        """Returns the full name of an import or a builtin, such as `jax.lax.scan`; '' for a name of the package."""
        head = node
        while isinstance(head, ast.Attribute):
            head = head.value
        if not isinstance(head, ast.Name) or self.texts[key].variable(head)[0] or self.definition(head, key):
            return ""
        name, dot, rest = dotted_name(node).partition(".")
        return self._imported[key].get(name, _DEFAULT_IMPORTS.get(name, name)) + dot + rest

    def _read_imports(self, source: TracedTree) -> dict[str, str]:
        """Returns the full name of each import of a definition's fragments; the first of those with one alias."""
        names: dict[str, str] = {}
        for path in source.traced.paths():
            for found in self._imports.get(path, {}).values():
                full = f"{found.module}.{found.name}" if found.name else found.module
                is_package = found.module.startswith(f"{found.alias}.")  # `import jax.numpy` binds `jax`
                names.setdefault(found.alias, found.alias if is_package else full)
        return names
