"""Who calls whom. A call is followed in six forms, and in no other:

inner(x)                              a name of a function
Block(config)                         a class
self.attention(x)                     an attribute that is one class, by `self.attention = Attention(...)` or a type
layer(x)                              a parameter or a variable that says its class: `layer: Block`
model.hidden(x)                       a method of one of these
jax.lax.scan(block, x, layers)        what a scan is given, as such or in `jax.checkpoint`
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import libcst as cst

from generator.code import syntax
from generator.code.syntax import Source
from generator.language.parts import Definition, Import
from generator.thread.classes import Classes
from generator.thread.functions import Call, Function, read_functions
from generator.thread.names import Names

_SCAN = "jax.lax.scan"
_CHECKPOINT = ("jax.checkpoint", "jax.ad_checkpoint.checkpoint", "jax.remat", "flax.nnx.remat")
_HARMLESS = ("policy", "prevent_cse", "concrete")  # what jax.checkpoint may be told: nothing about single parameters


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
