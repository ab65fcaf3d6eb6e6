"""Who calls whom. A call is followed in six forms, and in no other:

inner(x)                              a name of a function
Block(config)                         a class
self.attention(x)                     an attribute that is one class, by `self.attention = Attention(...)` or a type
layer(x)                              a parameter or a variable that says its class: `layer: Block`
model.hidden(x)                       a method of one of these
jax.lax.scan(block, x, layers)        what a scan is given, as such or in `jax.checkpoint`
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

import libcst as cst

from generator.code import syntax
from generator.code.syntax import Source
from generator.errors import LoomError
from generator.language.parts import Definition, Import
from generator.thread.functions import Call, Function, read_functions
from generator.thread.names import Names, targets_of

_SCAN = "jax.lax.scan"
_CHECKPOINT = ("jax.checkpoint", "jax.ad_checkpoint.checkpoint", "jax.remat", "flax.nnx.remat")
_HARMLESS = ("policy", "prevent_cse", "concrete")  # what jax.checkpoint may be told: nothing about single parameters


class Classes:
    """The classes of the definitions.

    Attributes:
        nodes: class -> its node and the key of its definition.
        has_config: classes that keep their config as self.config.
        stated: class and attribute -> the annotation of the attribute, '' for one without.
        assigned: attribute -> key, target and value of each assignment, whatever it is an attribute of.
        attributes: the names of all attributes.
    """

    def __init__(self, sources: Mapping[str, Source], functions: Mapping[str, Function], names: Names):
        self._functions = functions
        self.nodes = {
            statement.name.value: (statement, key)
            for key, source in sources.items()
            for statement in source.module.body
            if isinstance(statement, cst.ClassDef)
        }
        bases = {
            name: [word for base in node.bases if (word := syntax.dotted(base.value)) in self.nodes]
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
        self.has_config: set[str] = set()
        self.stated: dict[tuple[str, str], str] = {}
        for name, (node, key) in self.nodes.items():
            self._read_class(name, node, sources[key])
        self.assigned: dict[str, list[tuple[str, cst.Attribute, cst.BaseExpression | None]]] = {}
        for key, text in names.texts.items():
            for target, value in text.assigned:
                self.assigned.setdefault(target.attr.value, []).append((key, target, value))
        self.attributes = frozenset((*self.assigned, *(attribute for _, attribute in self.stated)))

    def _read_class(self, name: str, node: cst.ClassDef, source: Source) -> None:
        for below in syntax.below(node, cst.AnnAssign, cst.Assign):
            target = syntax.dotted(next(targets_of(below)))
            if target == "self.config":
                self.has_config.add(name)
            if isinstance(below, cst.AnnAssign) and target.startswith("self."):
                self.stated[name, target.removeprefix("self.")] = source.code(below.annotation.annotation)
        for statement in map(syntax.simple, syntax.body(node)):
            if isinstance(statement, cst.AnnAssign):
                self.stated[name, syntax.dotted(statement.target)] = source.code(statement.annotation.annotation)
            elif isinstance(statement, cst.Assign):
                for assigned in statement.targets:
                    self.stated.setdefault((name, syntax.dotted(assigned.target)), "")

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
            owner = key.rpartition(":")[2] if syntax.dotted(target.value) == "self" else ""
            if owner not in self.nodes or owner in related:
                made = syntax.called(value)
                kinds.add(made if made in self.nodes else "")
        return kinds.pop() if len(kinds) == 1 else ""


class CallGraph:
    """All functions of the selected definitions and the calls between them.

    Attributes:
        followed: definition and the expression in it by which a call calls.
    """

    def __init__(self, definitions: dict[str, Definition], imports: Mapping[str, Mapping[str, Import]]):
        self.sources = {key: Source(definition.text) for key, definition in definitions.items()}
        self.functions: dict[str, Function] = read_functions(self.sources)
        self.names = Names(self.sources, self.functions, imports)
        self.classes = Classes(self.sources, self.functions, self.names)
        self._targets: dict[tuple[str, cst.CSTNode], str] = {}
        self.calls: list[Call] = []
        self.followed: set[tuple[str, cst.CSTNode]] = set()
        for function in self.functions.values():
            self._read_calls(function)
        self._callers: dict[str, list[Call]] = {name: [] for name in self.functions}
        self._calls: dict[str, list[Call]] = {name: [] for name in self.functions}
        for call in self.calls:
            self._callers[call.callee].append(call)
            self._calls[call.caller].append(call)

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

    def is_class(self, node: cst.CSTNode, key: str) -> bool:
        definition = self.names.definition(node, key)
        return bool(definition) and any(isinstance(s, cst.ClassDef) for s in self.sources[definition].module.body)

    def class_of(self, node: cst.CSTNode, key: str) -> str:
        """The class that `self`, an annotated name or an attribute of one is an instance of, else ''."""
        if isinstance(node, cst.Attribute):
            kind = self.class_of(node.value, key)
            return self.classes.attribute(kind, node.attr.value) if kind else ""
        if not isinstance(node, cst.Name) or not self.names.is_variable(node, key):
            return ""
        binding, host = self.names.binds(node, key), self.names.host(node, key)
        is_method = host and host.is_member and not host.decorated("staticmethod", "classmethod")
        if host and is_method and host.own and binding == host.own[:1]:
            return host.class_name
        stated = self.names.annotations(self.names.texts[key].of(node), key) if host else []
        kinds = {self.classes.named(annotation) for annotation in stated}
        for other in (other for other in binding if not getattr(other, "annotation", None)):
            kinds.add(self._class_of_result(other, key) if stated else "")
        return kinds.pop() if len(kinds) == 1 else ""

    def _class_of_result(self, node: cst.CSTNode, key: str) -> str:
        """The class that a function says it returns, of `model = function(...)`."""
        call = node.value if isinstance(node, cst.Assign) else None
        target = self.target(call.func, key) if isinstance(call, cst.Call) and isinstance(call.func, cst.Name) else ""
        return self.classes.named(self.functions[target].result) if target else ""

    def target(self, node: cst.BaseExpression, key: str) -> str:
        """The function that calling an expression calls for certain, else ''."""
        if (key, node) not in self._targets:
            self._targets[key, node] = self._target(node, key)
        return self._targets[key, node]

    def _target(self, node: cst.BaseExpression, key: str) -> str:
        if kind := self.class_of(node, key):
            return self.classes.method(kind, "__call__")
        if isinstance(node, cst.Attribute):
            kind, method = self.class_of(node.value, key), node.attr.value
            return self.classes.method(kind, method) if kind and method not in self.classes.attributes else ""
        if self.is_class(node, key):
            found = self.classes.methods(cst.ensure_type(node, cst.Name).value, "__init__")
            return next(iter(found)) if len(found) == 1 else ""
        function = self.names.function(node, key)
        return function.id if function else ""

    def is_scan(self, call: cst.Call, key: str) -> bool:
        return self.names.meaning(call.func, key) == _SCAN and bool(call.args)

    def unwrapped(self, node: cst.BaseExpression, key: str) -> cst.BaseExpression:
        """`f` of `jax.checkpoint(f)`, or of `remat(f)` where `remat` is a partial of jax.checkpoint."""
        while isinstance(node, cst.Call) and self._is_checkpoint(node.func, node.args[1:], key):
            if not node.args or node.args[0].keyword or node.args[0].star:
                break
            node = node.args[0].value
        return node

    def _is_checkpoint(self, node: cst.BaseExpression, arguments: Sequence[cst.Arg], key: str) -> bool:
        """Whether an expression is jax.checkpoint, or a local name for a partial of it."""
        if isinstance(node, cst.Name) and self.names.is_variable(node, key):
            binding = self.names.binds(node, key)
            made = binding[0].value if len(binding) == 1 and isinstance(binding[0], cst.Assign) else None
            if isinstance(made, cst.Call) and made.args and self.names.meaning(made.func, key) == "functools.partial":
                node, arguments = made.args[0].value, [*made.args[1:], *arguments]
        harmless = all(argument.keyword and argument.keyword.value in _HARMLESS for argument in arguments)
        return harmless and self.names.meaning(node, key) in _CHECKPOINT

    def _read_calls(self, function: Function) -> None:
        for statement in syntax.statements(function.node):
            for node in () if isinstance(statement, cst.FunctionDef) else syntax.own_expressions(statement):
                if type(node) is cst.Call:  # isinstance takes long for libcst's nodes
                    scan = self.is_scan(node, function.key)
                    called = self.unwrapped(scanned(node) if scan else node.func, function.key)
                    if callee := self.target(called, function.key):
                        self.calls.append(Call(function.id, callee, node, statement, scan))
                        self.followed.add((function.key, called))


def scanned(call: cst.Call) -> cst.BaseExpression:
    """The function that a scan is given."""
    return next((a.value for a in call.args if a.keyword and a.keyword.value == "f"), call.args[0].value)
