"""The call graph. A call is followed in six forms, and in no other:

inner(x)                              the name of a function
Block(config)                         a class
self.attention(x)                     an attribute of one class, by `self.attention = Attention(...)` or its annotation
layer(x)                              a parameter or a variable whose annotation is a class: `layer: Block`
model.hidden(x)                       a method of one of these
jax.lax.scan(block, x, layers)        the function of a scan, as such or in `jax.checkpoint`; a function of the package
                                      whose first parameters are `f, init, xs` is a scan too
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from generator.code.tree import FUNCTIONS, TracedTree, called_name, children, dotted_name, walk
from generator.errors import LoomError
from generator.language.parts import Definition, Import
from generator.thread.functions import Call, Function, arguments, read_functions
from generator.thread.names import Names

_SCAN = "jax.lax.scan"
_CHECKPOINT = ("jax.checkpoint", "jax.ad_checkpoint.checkpoint", "jax.remat", "flax.nnx.remat")
_HARMLESS = ("policy", "prevent_cse", "concrete")  # arguments of jax.checkpoint that do not count parameters


class Classes:
    """The classes of the definitions.

    Attributes:
        nodes: class -> its node and the key of its definition.
        annotations: class and attribute -> the annotation of the attribute, '' for one without.
        assigned: name of an attribute -> key, target and value of each assignment to it in the package.
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
            name: [base for node in node.bases if (base := dotted_name(node)) in self.nodes]
            for name, (node, _) in self.nodes.items()
        }
        try:
            order = [*TopologicalSorter(bases).static_order()]
        except CycleError as error:
            start, key = self.nodes[error.args[1][0]]
            message = f"{' and '.join(dict.fromkeys(error.args[1]))} inherit from each other"
            raise LoomError(message, sources[key].where(start), "Remove one of the bases.") from None
        self._lineages: dict[str, list[str]] = {}
        for name in order:
            ancestors = [cls for base in bases[name] for cls in self._lineages[base]]
            self._lineages[name] = list(dict.fromkeys([name, *ancestors]))
        self.annotations: dict[tuple[str, str], str] = {}
        for name, (node, key) in self.nodes.items():
            for below in walk(node):
                match below:
                    case ast.AnnAssign(ast.Attribute(ast.Name("self"), attribute), annotation):
                        self.annotations[name, attribute] = sources[key].code(annotation)
            for statement in node.body:
                match statement:
                    case ast.AnnAssign(target, annotation):
                        self.annotations[name, dotted_name(target)] = sources[key].code(annotation)
                    case ast.Assign(targets):
                        for assigned in targets:
                            self.annotations.setdefault((name, dotted_name(assigned)), "")
        self.assigned: dict[str, list[tuple[str, ast.Attribute, ast.expr | None]]] = defaultdict(list)
        for key, text in names.texts.items():
            for place, value in text.assigned:
                self.assigned[place.attr].append((key, place, value))
        self.attributes = frozenset((*self.assigned, *(attribute for _, attribute in self.annotations)))

    def lineage(self, name: str) -> list[str]:
        """Returns a class and its ancestors."""
        return self._lineages.get(name, [])

    def family(self, name: str) -> list[str]:
        """Returns a class and its descendants."""
        return [cls for cls, lineage in self._lineages.items() if name in lineage]

    def methods(self, name: str, method: str) -> set[str]:
        """Returns the functions that a method of a class may be: its own and those of its ancestors."""
        return {id for cls in self.lineage(name) if (id := f"{cls}.{method}") in self._functions}

    def resolve_method(self, name: str, method: str) -> str:
        """Returns the one function that a method of every instance of a class is, else ''."""
        classes = self.family(name)
        methods = {id for cls in classes for id in self.methods(cls, method)}
        is_computed = any(
            self.methods(cls, dunder) for cls in classes for dunder in ("__getattr__", "__getattribute__")
        )
        return methods.pop() if len(methods) == 1 and not is_computed else ""

    def annotated(self, annotation: str) -> str:
        """Returns the class of an annotation: `Block`, `"Block"`, `Block | None`; else ''."""
        names = [part for part in re.split(r"[\"'|\s]+", annotation) if part not in ("", "None")]
        return names[0] if len(names) == 1 and names[0] in self.nodes else ""

    def classes_in(self, annotation: str) -> set[str]:
        """Returns the classes that an annotation mentions: `list[Block]`."""
        return self.nodes.keys() & set(re.findall(r"\w+", annotation))

    def class_of_attribute(self, name: str, attribute: str) -> str:
        """Returns the class of an attribute, by its annotation or by every `self.attribute = Class(...)`; else ''."""
        for class_name in self.lineage(name):
            if (class_name, attribute) in self.annotations:
                return self.annotated(self.annotations[class_name, attribute])
        related = {*self.lineage(name), *self.family(name)}
        classes = set()
        for key, target, value in self.assigned.get(attribute, ()):
            owner = key.rpartition(":")[2] if dotted_name(target.value) == "self" else ""
            if owner not in self.nodes or owner in related:
                classes.add(self.annotated(called_name(value)))
        return classes.pop() if len(classes) == 1 else ""


class CallGraph:
    """All functions of the selected definitions and the calls between them.

    Where a method takes a `key`, this is the definition that contains the expression.

    Attributes:
        callers: function -> the calls of it.
        calls_of: function -> the calls in it.
        followed: each key and expression that is called by a call which is followed.
    """

    def __init__(self, definitions: dict[str, Definition], imports: Mapping[str, Mapping[str, Import]]):
        self.sources = {key: TracedTree(definition.text) for key, definition in definitions.items()}
        self.functions: dict[str, Function] = read_functions(self.sources)
        self.names = Names(self.sources, self.functions, imports)
        self.classes = Classes(self.sources, self.functions, self.names)
        self._callees: dict[tuple[str, ast.AST], str] = {}
        self.calls: list[Call] = []
        self.followed: set[tuple[str, ast.AST]] = set()
        self.callers: dict[str, list[Call]] = defaultdict(list)
        self.calls_of: dict[str, list[Call]] = defaultdict(list)
        for function in self.functions.values():
            self._read_calls(function)
        self._outward: dict[str, set[str]] = defaultdict(set)  # function -> its callers and the one that encloses it
        self._inward: dict[str, set[str]] = defaultdict(set)
        nested = [(function.owner, name) for name, function in self.functions.items() if function.owner]
        for outer, inner in [*nested, *((call.caller, call.callee) for call in self.calls)]:
            self._outward[inner].add(outer)
            self._inward[outer].add(inner)

    def reachable(self, starts: Iterable[str], inward: bool, avoiding: str = "") -> set[str]:
        """Returns the functions that the starts can call (inward), or from which a start can be called.

        Args:
            avoiding: a function that no way leads through.
        """
        steps = self._inward if inward else self._outward
        found, queue = set(starts), list(starts)
        while queue:
            new = steps[queue.pop()] - found - {avoiding}
            found |= new
            queue += new
        return found

    def common_site(self, start: str) -> str:
        """Returns the outermost function or method that every way to a function leads through; '' for none."""
        outer = self.reachable([start], inward=False)
        ends = {function for function in outer if not self._outward[function]}
        sites = [
            function
            for function in outer - {start}
            if not (self.functions[function].owner or self.functions[function].is_dunder)
            and ends.isdisjoint(self.reachable([start], inward=False, avoiding=function))
        ]
        return max(sorted(sites), key=lambda f: len(self.reachable([f], inward=True) & outer), default="")

    def is_class(self, node: ast.AST, key: str) -> bool:
        definition = self.names.definition(node, key)
        return bool(definition) and any(isinstance(s, ast.ClassDef) for s in self.sources[definition].statements)

    def class_of(self, node: ast.AST, key: str) -> str:
        """Returns the class of `self`, an annotated name or an attribute of one, else ''."""
        if isinstance(node, ast.Attribute):
            class_name = self.class_of(node.value, key)
            return self.classes.class_of_attribute(class_name, node.attr) if class_name else ""
        if not isinstance(node, ast.Name):
            return ""
        variable = self.names.texts[key].variable(node)
        bindings, host = self.names.bindings(variable, key), self.names.host(variable, key)
        if host and bindings == [host.receiver] and not host.has_decorator("classmethod"):
            return host.class_name
        annotations = self.names.annotations(variable, key) if host else []
        classes = {self.classes.annotated(annotation) for annotation in annotations}
        for binding in bindings if annotations else ():
            if not getattr(binding, "annotation", None):
                classes.add(self._class_of_result(binding, key))
        return classes.pop() if len(classes) == 1 else ""

    def _class_of_result(self, node: ast.AST, key: str) -> str:
        """Returns the class of `model = function(...)`, by the function's return type, else ''."""
        match node:
            case ast.Assign(value=ast.Call(ast.Name() as func)) if callee := self.resolve_callee(func, key):
                return self.classes.annotated(self.functions[callee].return_type)
        return ""

    def resolve_callee(self, node: ast.AST, key: str) -> str:
        """Returns the function that a call of an expression always calls, else ''."""
        if (key, node) not in self._callees:
            self._callees[key, node] = ""  # `x = x(1)` does not determine the class of x
            self._callees[key, node] = self._resolve_callee(node, key)
        return self._callees[key, node]

    def _resolve_callee(self, node: ast.AST, key: str) -> str:
        if class_name := self.class_of(node, key):
            return self.classes.resolve_method(class_name, "__call__")
        if isinstance(node, ast.Attribute):
            owner, method = self.class_of(node.value, key), node.attr
            return self.classes.resolve_method(owner, method) if owner and method not in self.classes.attributes else ""
        if self.is_class(node, key):
            makers = self.classes.methods(dotted_name(node), "__init__")
            return makers.pop() if len(makers) == 1 else ""
        function = self.names.function(node, key)
        return function.id if function else ""

    def unwrap_checkpoint(self, node: ast.expr, key: str) -> ast.expr:
        """Returns `f` of `jax.checkpoint(f)`, or of `remat(f)` where `remat` is a partial of jax.checkpoint."""
        while isinstance(node, ast.Call) and node.args and not isinstance(node.args[0], ast.Starred):
            if not self._is_checkpoint(node.func, [*node.args[1:], *node.keywords], key):
                break
            node = node.args[0]
        return node

    def _is_checkpoint(self, node: ast.AST, arguments: Sequence[ast.AST], key: str) -> bool:
        """Returns whether an expression is jax.checkpoint, or a local name for a partial of it."""
        if isinstance(node, ast.Name):
            match self.names.bindings(self.names.texts[key].variable(node), key):
                case [ast.Assign(value=ast.Call(func, [wrapped, *rest], keywords))]:
                    if self.names.meaning(func, key) == "functools.partial":
                        node, arguments = wrapped, [*rest, *keywords, *arguments]
        is_harmless = all(isinstance(argument, ast.keyword) and argument.arg in _HARMLESS for argument in arguments)
        return is_harmless and self.names.meaning(node, key) in _CHECKPOINT

    def _is_scan(self, node: ast.AST, key: str) -> bool:
        """Returns whether an expression is jax.lax.scan, or a function of the package with its parameters."""
        if self.names.meaning(node, key) == _SCAN:
            return True
        function = self.names.function(node, key)
        return function is not None and function.parameter_names[:3] == ["f", "init", "xs"]

    def _read_calls(self, function: Function) -> None:
        for statement in function.statements:
            for node in () if isinstance(statement, FUNCTIONS) else _own_expressions(statement):
                if isinstance(node, ast.Call):
                    is_scan = bool(arguments(node)) and self._is_scan(node.func, function.key)
                    func = self.unwrap_checkpoint(_scanned(node) if is_scan else node.func, function.key)
                    if callee := self.resolve_callee(func, function.key):
                        call = Call(function.id, callee, node, statement, is_scan)
                        self.calls.append(call)
                        self.callers[callee].append(call)
                        self.calls_of[function.id].append(call)
                        self.followed.add((function.key, func))


def _own_expressions(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes of a statement, without those of the statements inside it."""
    for child in children(node):
        if not isinstance(child, ast.stmt):
            yield child
            yield from _own_expressions(child)


def _scanned(call: ast.Call) -> ast.expr:
    """Returns the function that a scan calls."""
    return next((keyword.value for keyword in call.keywords if keyword.arg == "f"), arguments(call)[0])
