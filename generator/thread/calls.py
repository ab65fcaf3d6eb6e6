"""Who calls whom, read from what good code says anyway.

`self.attention = Attention(...)` in a class gives the type of `self.attention`; an annotation gives the type of a
parameter, a variable, an attribute or a result (`layer: Block`); a function is called by its name, or by a local name
for it (`step = jax.jit(train_step)`); a nested function is called where `jax.lax.scan` gets it. Only what is certain is
followed: a name that is bound in one way, an attribute that is given one type.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import libcst as cst

from generator.code import syntax
from generator.code.syntax import Source
from generator.language.parts import Definition, Import
from generator.thread.functions import Call, Classes, Function, Wrapper, read_functions
from generator.thread.variables import Names, Variable
from generator.thread.wrappers import SCAN, Wrappers


class Target(NamedTuple):
    """What an expression calls: a function, and what its local names wrap it in."""

    callee: str
    wrappers: tuple[Wrapper, ...] = ()


class CallGraph:
    """All functions of the selected definitions and the calls between them.

    Attributes:
        followed: definition and the name in it by which a call calls.
        aliases: local names for functions.
    """

    def __init__(self, definitions: dict[str, Definition], imports: Mapping[str, Mapping[str, Import]]):
        self.sources = {key: Source(definition.text) for key, definition in definitions.items()}
        self.classes = Classes(self.sources)
        self.functions: dict[str, Function] = read_functions(self.sources)
        self.names = Names(self.sources, self.functions, imports)
        self.wrappers = Wrappers(self.names)
        self.calls: list[Call] = []
        self.followed: set[tuple[str, cst.CSTNode]] = set()
        self.aliases: dict[Variable, str] = {}
        self._types: dict[tuple[str, cst.CSTNode], str] = {}
        self._methods: dict[tuple[str, str], set[str]] = {}
        for function in self.functions.values():
            self._read_calls(function)
        self._callers: dict[str, list[Call]] = {name: [] for name in self.functions}
        self._made: dict[str, list[Call]] = {name: [] for name in self.functions}
        for call in self.calls:
            self._callers[call.callee].append(call)
            self._made[call.caller].append(call)

    def callers(self, callee: str) -> list[Call]:
        return self._callers[callee]

    def calls_of(self, caller: str) -> list[Call]:
        return self._made[caller]

    def outward(self, function: str) -> list[str]:
        """The functions one step out: those that call it, and the one that encloses it."""
        owner = self.functions[function].owner
        return list(dict.fromkeys([c.caller for c in self.callers(function)] + ([owner] if owner else [])))

    @cached_property
    def _outer(self) -> dict[str, set[str]]:
        return {name: set(self.outward(name)) for name in self.functions}

    @cached_property
    def _inner(self) -> dict[str, set[str]]:
        steps: dict[str, set[str]] = {name: set() for name in self.functions}
        for name, outer in self._outer.items():
            for caller in outer:
                steps[caller].add(name)
        return steps

    def reach(self, starts: set[str], inward: bool) -> set[str]:
        """All functions from which a start can be called, or that a start can call."""
        steps = self._inner if inward else self._outer
        found, queue = set(starts), list(starts)
        while queue:
            for name in sorted(steps[queue.pop()] - found):
                found.add(name)
                queue.append(name)
        return found

    def methods(self, class_name: str, method: str) -> set[str]:
        """The functions that a method of an instance of a class may be: its own, an inherited one, a subclass's."""
        if (class_name, method) not in self._methods:
            family = self.classes.family(class_name)
            self._methods[class_name, method] = {found for kind in family if (found := self.method(kind, method))}
        return self._methods[class_name, method]

    def method(self, class_name: str, method: str, after: str = "") -> str:
        """The function that is a method of a class, its own or inherited, '' for none; of what comes after a base."""
        lineage = self.classes.lineage(class_name)
        for name in lineage[lineage.index(after) + 1 :] if after else lineage:
            if f"{name}.{method}" in self.functions:
                return f"{name}.{method}"
        return ""

    def meant(self, owner: cst.BaseExpression, method: str, key: str) -> set[str] | None:
        """The functions that a method of an expression may be, None where that may be anything."""
        if isinstance(owner, cst.Call) and syntax.called(owner) == "super" and not owner.args:
            host = self.names.host((self.names.texts[key].standing[cst.ensure_type(owner.func, cst.Name)], ""), key)
            if host and host.is_method:
                kinds = self.classes.family(host.class_name)
                return {self.method(kind, method, after=host.class_name) for kind in kinds}
        kind = self.class_of(owner, key)
        computed = kind and (self.methods(kind, "__getattr__") | self.methods(kind, "__getattribute__"))
        return self.methods(kind, method) if kind and not computed else None

    def class_of(self, node: cst.CSTNode, key: str) -> str:
        """The class that an expression is certain to be an instance of, else ''."""
        if (key, node) not in self._types:
            self._types[key, node] = ""  # where it depends on itself
            self._types[key, node] = self._read_class(node, key)
        return self._types[key, node]

    def is_class(self, node: cst.CSTNode, key: str) -> bool:
        definition = self.names.definition(node, key)
        return bool(definition) and any(isinstance(s, cst.ClassDef) for s in self.sources[definition].module.body)

    def _read_calls(self, function: Function) -> None:
        for statement in syntax.statements(function.node):
            if isinstance(statement, cst.FunctionDef):
                continue
            for node in syntax.own_expressions(statement):
                if type(node) is not cst.Call:
                    continue
                scan = self.names.meaning(node.func, function.key) == SCAN and bool(node.args)
                wrappers, called = self.wrappers.around(_scanned(node) if scan else node.func, function.key)
                target = self._target(called, function.key, frozenset())
                if target:
                    wrappers += target.wrappers
                    self.calls.append(Call(function.id, target.callee, node, statement, scan, wrappers))
                    self.followed.add((function.key, called))

    def _target(self, node: cst.BaseExpression, key: str, seen: frozenset[cst.CSTNode]) -> Target | None:
        """The function that calling an expression calls for certain."""
        found: set[str] = set()
        if isinstance(node, cst.Attribute):
            kind, method = self.class_of(node, key), node.attr.value
            if kind:
                found = self.methods(kind, "__call__")
            elif method not in self.classes.attributes and method not in self.classes.given:
                found = self.meant(node.value, method, key) or set()
        elif isinstance(node, cst.Name) and node in self.names.texts[key].standing and node not in seen:
            if function := self.names.function(node, key):
                return Target(function.id)
            if self.is_class(node, key):
                found = {self.method(node.value, "__init__")}
            elif kind := self.class_of(node, key):
                found = self.methods(kind, "__call__")
            elif value := self.names.value(node, key):
                wrappers, inner = self.wrappers.around(value, key)
                target = self._target(inner, key, seen | {node})
                if target and isinstance(inner, (cst.Name, cst.Attribute)):
                    self.followed.add((key, inner))
                    self.aliases[self.names.variable(node, key)] = target.callee
                    return Target(target.callee, wrappers + target.wrappers)
        return Target(next(iter(found))) if len(found) == 1 and found != {""} else None

    def _read_class(self, node: cst.CSTNode, key: str) -> str:
        if isinstance(node, cst.Name):
            return self._class_of_name(node, key) if node in self.names.texts[key].standing else ""
        if isinstance(node, cst.Attribute):
            kind = self.class_of(node.value, key)
            return self._class_of_attribute(kind, node.attr.value) if kind else ""
        if isinstance(node, cst.Call):
            if self.is_class(node.func, key):
                return cst.ensure_type(node.func, cst.Name).value
            target = self._target(node.func, key, frozenset())
            plain = target and not any("grad" in wrapper.word for wrapper in target.wrappers)
            return self.classes.named(self.functions[target.callee].result) if target and plain else ""
        return ""

    def _class_of_name(self, name: cst.Name, key: str) -> str:
        variable = self.names.variable(name, key)
        binding, host = self.names.binds(variable, key), self.names.host(variable, key)
        if host and host.is_method and not host.decorated("classmethod") and len(binding) == 1:
            own = [*host.node.params.posonly_params, *host.node.params.params]
            if own and binding[0] is own[0]:
                return host.class_name
        stated = {self.classes.named(annotation) for annotation in self.names.annotations(variable, key)}
        others = [node for node in binding if not isinstance(getattr(node, "annotation", None), cst.Annotation)]
        assigned = {self.class_of(node.value, key) if isinstance(node, cst.Assign) else "" for node in others}
        kinds = stated | assigned if variable[0] else set()
        return kinds.pop() if len(kinds) == 1 else ""

    def _class_of_attribute(self, kind: str, attribute: str) -> str:
        """The class of an attribute: as it is stated, or as every assignment to it says."""
        for base in self.classes.lineage(kind):
            if (base, attribute) in self.classes.stated:
                return self.classes.named(self.classes.stated[base, attribute])
        kinds, related = set(), {*self.classes.lineage(kind), *self.classes.family(kind)}
        for key, target, value in self.classes.given.get(attribute, ()):
            owner = self.class_of(target.value, key)
            if not owner or owner in related:
                kinds.add(self.class_of(value, key) if value else "")
        return kinds.pop() if len(kinds) == 1 else ""


def _scanned(call: cst.Call) -> cst.BaseExpression:
    """The function that a scan is given."""
    named = [argument.value for argument in call.args if argument.keyword and argument.keyword.value == "f"]
    return (named or [call.args[0].value])[0]
