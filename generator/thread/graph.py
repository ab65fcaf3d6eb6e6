"""Who calls whom. A call is followed in six forms, and in no other:

inner(x)                              a name of a function
Block(config)                         a class
self.attention(x)                     an attribute that is one class, by `self.attention = Attention(...)` or a type
layer(x)                              a parameter or a variable that says its class: `layer: Block`
model.hidden(x)                       a method of one of these
jax.lax.scan(block, x, layers)        what a scan is given, as such or in `jax.checkpoint`
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from generator.code.tree import FUNCTIONS, TracedTree, called_name, children, dotted_name, walk
from generator.errors import LoomError
from generator.language.parts import Definition, Import
from generator.thread.functions import Call, Function, arguments, read_functions
from generator.thread.names import Names

_SCAN = "jax.lax.scan"
_CHECKPOINT = ("jax.checkpoint", "jax.ad_checkpoint.checkpoint", "jax.remat", "flax.nnx.remat")
_HARMLESS = ("policy", "prevent_cse", "concrete")  # what jax.checkpoint may be told: nothing about single parameters


class Classes:
    """The classes of the definitions.

    Attributes:
        nodes: class -> its node and the key of its definition.
        stated: class and attribute -> the annotation of the attribute, '' for one without.
        assigned: attribute -> key, target and value of each assignment, whatever it is an attribute of.
        attributes: the names of all attributes.
    """

    def __init__(self, sources: Mapping[str, TracedTree], functions: Mapping[str, Function], names: Names):
        self._functions = functions
        self.nodes = {
            statement.name: (statement, key)
            for key, source in sources.items()
            for statement in source.statements
            if isinstance(statement, ast.ClassDef)
        }
        bases = {
            name: [word for base in node.bases if (word := dotted_name(base)) in self.nodes]
            for name, (node, _) in self.nodes.items()
        }
        try:
            order = [*TopologicalSorter(bases).static_order()]
        except CycleError as error:
            start, where = self.nodes[error.args[1][0]]
            message = f"{' and '.join(dict.fromkeys(error.args[1]))} inherit from each other"
            raise LoomError(message, sources[where].where(start), "Remove one of the bases.") from None
        self._lineages: dict[str, list[str]] = {}
        for name in order:
            above = [kind for base in bases[name] for kind in self._lineages[base]]
            self._lineages[name] = list(dict.fromkeys([name, *above]))
        self.stated: dict[tuple[str, str], str] = {}
        for name, (node, key) in self.nodes.items():
            self._read_class(name, node, sources[key])
        self.assigned: dict[str, list[tuple[str, ast.Attribute, ast.expr | None]]] = {}
        for key, text in names.texts.items():
            for target, value in text.assigned:
                self.assigned.setdefault(target.attr, []).append((key, target, value))
        self.attributes = frozenset((*self.assigned, *(attribute for _, attribute in self.stated)))

    def _read_class(self, name: str, node: ast.ClassDef, source: TracedTree) -> None:
        for below in walk(node):
            match below:
                case ast.AnnAssign(ast.Attribute(ast.Name("self"), attribute), annotation):
                    self.stated[name, attribute] = source.code(annotation)
        for statement in node.body:
            match statement:
                case ast.AnnAssign(target, annotation):
                    self.stated[name, dotted_name(target)] = source.code(annotation)
                case ast.Assign(targets):
                    for assigned in targets:
                        self.stated.setdefault((name, dotted_name(assigned)), "")

    def lineage(self, name: str) -> list[str]:
        """A class and those that it inherits from."""
        return self._lineages.get(name, [])

    def family(self, name: str) -> list[str]:
        """A class and those that inherit from it."""
        return [kind for kind, lineage in self._lineages.items() if name in lineage]

    def methods(self, name: str, method: str) -> set[str]:
        """The functions that a method of a class may be."""
        return {id for kind in self.lineage(name) if (id := f"{kind}.{method}") in self._functions}

    def method(self, name: str, method: str) -> str:
        """The one function that a method of any instance of a class is, else ''."""
        kinds = self.family(name)
        found = {id for kind in kinds for id in self.methods(kind, method)}
        computed = any(self.methods(kind, word) for kind in kinds for word in ("__getattr__", "__getattribute__"))
        return found.pop() if len(found) == 1 and not computed else ""

    def named(self, annotation: str) -> str:
        """The class of an annotation: `Block`, `"Block"`, `Block | None`; else ''."""
        found = [part for part in re.split(r"[\"'|\s]+", annotation) if part not in ("", "None")]
        return found[0] if len(found) == 1 and found[0] in self.nodes else ""

    def mentioned(self, annotation: str) -> set[str]:
        """The classes that an annotation names: `list[Block]`."""
        return self.nodes.keys() & set(re.findall(r"\w+", annotation))

    def attribute(self, name: str, attribute: str) -> str:
        """The class of an attribute: as it is stated, or as every `self.attribute = Class(...)` says."""
        for kind in self.lineage(name):
            if (kind, attribute) in self.stated:
                return self.named(self.stated[kind, attribute])
        related = {*self.lineage(name), *self.family(name)}
        kinds = set()
        for key, target, value in self.assigned.get(attribute, ()):
            owner = key.rpartition(":")[2] if dotted_name(target.value) == "self" else ""
            if owner not in self.nodes or owner in related:
                made = called_name(value)
                kinds.add(made if made in self.nodes else "")
        return kinds.pop() if len(kinds) == 1 else ""


class CallGraph:
    """All functions of the selected definitions and the calls between them.

    Attributes:
        followed: definition and the expression in it by which a call calls.
    """

    def __init__(self, definitions: dict[str, Definition], imports: Mapping[str, Mapping[str, Import]]):
        self.sources = {key: TracedTree(definition.text) for key, definition in definitions.items()}
        self.functions: dict[str, Function] = read_functions(self.sources)
        self.names = Names(self.sources, self.functions, imports)
        self.classes = Classes(self.sources, self.functions, self.names)
        self._targets: dict[tuple[str, ast.AST], str] = {}
        self.calls: list[Call] = []
        self.followed: set[tuple[str, ast.AST]] = set()
        self._callers: dict[str, list[Call]] = defaultdict(list)
        self._calls: dict[str, list[Call]] = defaultdict(list)
        for function in self.functions.values():
            self._read_calls(function)

    def callers(self, callee: str) -> list[Call]:
        return self._callers[callee]

    def calls_of(self, caller: str) -> list[Call]:
        return self._calls[caller]

    def outward(self, function: str) -> list[str]:
        """The functions one step out: those that call it, and the one that encloses it."""
        owner = self.functions[function].owner
        return list(dict.fromkeys([c.caller for c in self.callers(function)] + ([owner] if owner else [])))

    @cached_property
    def _inward(self) -> dict[str, list[str]]:
        steps: dict[str, list[str]] = {name: [] for name in self.functions}
        for name in self.functions:
            for outer in self.outward(name):
                steps[outer].append(name)
        return steps

    def reach(self, starts: Iterable[str], inward: bool) -> set[str]:
        """All functions from which a start can be called, or that a start can call."""
        found, queue = set(starts), list(starts)
        while queue:
            name = queue.pop()
            new = [other for other in (self._inward[name] if inward else self.outward(name)) if other not in found]
            found.update(new)
            queue += new
        return found

    def is_class(self, node: ast.AST, key: str) -> bool:
        definition = self.names.definition(node, key)
        return bool(definition) and any(isinstance(s, ast.ClassDef) for s in self.sources[definition].statements)

    def class_of(self, node: ast.AST, key: str) -> str:
        """The class that `self`, an annotated name or an attribute of one is an instance of, else ''."""
        if isinstance(node, ast.Attribute):
            kind = self.class_of(node.value, key)
            return self.classes.attribute(kind, node.attr) if kind else ""
        if not isinstance(node, ast.Name):
            return ""
        variable = self.names.texts[key].of(node)
        binding, host = self.names.binds(variable, key), self.names.host(variable, key)
        is_method = host and host.is_member and not host.decorated("staticmethod", "classmethod")
        if host and is_method and host.own and binding == host.own[:1]:
            return host.class_name
        stated = self.names.annotations(variable, key) if host else []
        kinds = {self.classes.named(annotation) for annotation in stated}
        for other in (other for other in binding if not getattr(other, "annotation", None)):
            kinds.add(self._class_of_result(other, key) if stated else "")
        return kinds.pop() if len(kinds) == 1 else ""

    def _class_of_result(self, node: ast.AST, key: str) -> str:
        """The class that a function says it returns, of `model = function(...)`."""
        match node:
            case ast.Assign(value=ast.Call(ast.Name() as func)) if target := self.target(func, key):
                return self.classes.named(self.functions[target].result)
        return ""

    def target(self, node: ast.AST, key: str) -> str:
        """The function that calling an expression calls for certain, else ''."""
        if (key, node) not in self._targets:
            self._targets[key, node] = ""  # what `x = x(1)` makes of x says no class
            self._targets[key, node] = self._target(node, key)
        return self._targets[key, node]

    def _target(self, node: ast.AST, key: str) -> str:
        if kind := self.class_of(node, key):
            return self.classes.method(kind, "__call__")
        if isinstance(node, ast.Attribute):
            kind, method = self.class_of(node.value, key), node.attr
            return self.classes.method(kind, method) if kind and method not in self.classes.attributes else ""
        if self.is_class(node, key):
            found = self.classes.methods(dotted_name(node), "__init__")
            return next(iter(found)) if len(found) == 1 else ""
        function = self.names.function(node, key)
        return function.id if function else ""

    def unwrapped(self, node: ast.expr, key: str) -> ast.expr:
        """`f` of `jax.checkpoint(f)`, or of `remat(f)` where `remat` is a partial of jax.checkpoint."""
        while isinstance(node, ast.Call) and node.args and not isinstance(node.args[0], ast.Starred):
            if not self._is_checkpoint(node.func, [*node.args[1:], *node.keywords], key):
                break
            node = node.args[0]
        return node

    def _is_checkpoint(self, node: ast.AST, arguments: Sequence[ast.AST], key: str) -> bool:
        """Whether an expression is jax.checkpoint, or a local name for a partial of it."""
        if isinstance(node, ast.Name):
            match self.names.binds(self.names.texts[key].of(node), key):
                case [ast.Assign(value=ast.Call(func, [wrapped, *rest], keywords))]:
                    if self.names.meaning(func, key) == "functools.partial":
                        node, arguments = wrapped, [*rest, *keywords, *arguments]
        harmless = all(isinstance(it, ast.keyword) and it.arg in _HARMLESS for it in arguments)
        return harmless and self.names.meaning(node, key) in _CHECKPOINT

    def _read_calls(self, function: Function) -> None:
        for statement in function.statements:
            for node in () if isinstance(statement, FUNCTIONS) else _own_expressions(statement):
                if isinstance(node, ast.Call):
                    scan = bool(arguments(node)) and self.names.meaning(node.func, function.key) == _SCAN
                    func = self.unwrapped(scanned(node) if scan else node.func, function.key)
                    if callee := self.target(func, function.key):
                        call = Call(function.id, callee, node, statement, scan)
                        self.calls.append(call)
                        self._callers[callee].append(call)
                        self._calls[function.id].append(call)
                        self.followed.add((function.key, func))


def _own_expressions(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement, without those of the statements inside it."""
    for child in children(node):
        if not isinstance(child, ast.stmt):
            yield child
            yield from _own_expressions(child)


def scanned(call: ast.Call) -> ast.expr:
    """The function that a scan is given."""
    return next((keyword.value for keyword in call.keywords if keyword.arg == "f"), arguments(call)[0])
