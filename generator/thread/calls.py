"""Who calls whom, read from what good code says anyway.

`self.attention = Attention(...)` in a class gives the type of `self.attention`; an annotation gives the type of a
parameter, a variable, an attribute or a result (`layer: Block`); a function is called by its name, or by a local name
for it (`step = jax.jit(train_step)`); a nested function is called where `jax.lax.scan` gets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import libcst as cst

from generator.code import syntax
from generator.code.syntax import Source
from generator.errors import LoomError
from generator.language.parts import Definition, Import
from generator.thread.functions import Call, Classes, Function, read_functions
from generator.thread.wrappers import SCAN, Wrappers


@dataclass(frozen=True)
class Doubt:
    """A call that may be one of several functions, as far as the types say."""

    caller: str
    node: cst.Call
    callees: tuple[str, ...]


class CallGraph:
    """All functions of the selected definitions and the calls between them."""

    def __init__(self, definitions: dict[str, Definition], imports: Mapping[str, Mapping[str, Import]]):
        self.sources = {key: Source(definition.text) for key, definition in definitions.items()}
        self.classes = Classes(self.sources)
        self.functions: dict[str, Function] = read_functions(self.sources)
        self.wrappers = Wrappers(self.functions, self.scopes, imports)
        self.calls: list[Call] = []
        self.doubts: list[Doubt] = []
        self.aliases: dict[str, list[tuple[str, str]]] = {}  # function -> (where, local name for it)
        self.followed: set[tuple[str, cst.CSTNode]] = set()  # definition and the name in it by which such a call calls
        for function in list(self.functions.values()):
            self._read_calls(function)

    def callers(self, callee: str) -> list[Call]:
        return [call for call in self.calls if call.callee == callee]

    def outward(self, function: str) -> list[str]:
        """The functions one step out: those that call it, and the one that encloses it."""
        owner = self.functions[function].owner
        return list(dict.fromkeys([c.caller for c in self.callers(function)] + ([owner] if owner else [])))

    def reach(self, starts: set[str], inward: bool) -> set[str]:
        """All functions from which a start can be called, or that a start can call."""
        steps: dict[str, set[str]] = {name: set() for name in self.functions}
        for name in self.functions:
            for outer in self.outward(name):
                first, second = (outer, name) if inward else (name, outer)
                steps[first].add(second)
        found, queue = set(starts), list(starts)
        while queue:
            for name in sorted(steps[queue.pop()] - found):
                found.add(name)
                queue.append(name)
        return found

    def check_doubts(self, callee: str) -> None:
        """Refuses a call that may be one of `callee`, or of another function.

        Raises:
            LoomError: at the first such call.
        """
        for doubt in self.doubts:
            if callee in doubt.callees:
                message = f"this may be a call of {' or of '.join(doubt.callees)}, and {callee} is threaded"
                where = self.functions[doubt.caller].source.where(doubt.node)
                raise LoomError(message, where, "Use two names, so that each has one type.")

    def _read_calls(self, function: Function) -> None:
        for statement in syntax.statements(function.node):
            if isinstance(statement, cst.FunctionDef):
                continue
            for node in syntax.own_expressions(statement):
                if not isinstance(node, cst.Call):
                    continue
                scan = self.wrappers.meaning(node.func, function) == SCAN and bool(node.args)
                wrappers, target = self.wrappers.around(_scanned(node) if scan else node.func, function)
                callees = self._resolve(target, function, frozenset())
                if len(callees) == 1:
                    self.calls.append(Call(function.id, callees[0], node, statement, scan, wrappers))
                    self.followed.add((function.key, target))
                elif len(callees) > 1:
                    self.doubts.append(Doubt(function.id, node, tuple(callees)))
                    self.followed.add((function.key, target))

    def _resolve(self, target: cst.BaseExpression, function: Function, seen: frozenset[str]) -> list[str]:
        if isinstance(target, cst.Attribute) and syntax.called(target.value) == "super":
            bases = self.classes.bases.get(function.class_name, ())
            return _distinct(self.method(base, target.attr.value) for base in bases)
        parts = syntax.dotted(target).split(".")
        if parts == [""]:
            return []
        if len(parts) > 1:
            classes = self._types(parts[0], function, seen)
            for attribute in parts[1:-1]:
                classes = [kind for owner in classes for kind in self.classes.attribute(owner, attribute)]
            last = [kind for owner in classes for kind in self.classes.attribute(owner, parts[-1])]
            methods = [self.method(kind, "__call__") for kind in last]
            return _distinct(methods or [self.method(owner, parts[-1]) for owner in classes])
        return self._resolve_name(parts[0], function, seen)

    def _resolve_name(self, name: str, function: Function, seen: frozenset[str]) -> list[str]:
        for scope in self.scopes(function):
            if f"{scope.id}.{name}" in self.functions:
                return [f"{scope.id}.{name}"]
            if name in scope.types or name in scope.bindings or name in scope.parameter_names:
                methods = [self.method(kind, "__call__") for kind in self._types(name, function, seen)]
                return _distinct(methods + self._aliased(name, scope, seen))
        if name in self.classes.names:
            return _distinct([self.method(name, "__init__")])
        local = f"{function.key.rsplit(':', 1)[0]}:{name}" if ":" in function.key else name
        return [found for found in (local, name) if found in self.functions][:1]

    def _aliased(self, name: str, scope: Function, seen: frozenset[str]) -> list[str]:
        """The functions that a local name stands for: `step = jax.jit(train_step)`, `f = self.attention`."""
        if f"{scope.id} {name}" in seen:
            return []
        found = []
        for value in scope.bindings.get(name, ()):
            target = self.wrappers.around(value, scope)[1]
            if isinstance(target, (cst.Name, cst.Attribute)):
                callees = self._resolve(target, scope, seen | {f"{scope.id} {name}"})
                found += callees
                self.followed.add((scope.key, target))
                for callee in callees:
                    if (scope.id, name) not in self.aliases.setdefault(callee, []):
                        self.aliases[callee].append((scope.id, name))
        return found

    def _types(self, name: str, function: Function, seen: frozenset[str]) -> list[str]:
        """The classes that a name may have."""
        if name == "self":
            return [function.class_name]
        for scope in self.scopes(function):
            if name in scope.types:
                return [scope.types[name]]
            if name in scope.bindings:
                if f"{scope.id} {name}" in seen:
                    return []
                values = scope.bindings[name]
                return _distinct(
                    kind for v in values for kind in self._type_of(v, scope, seen | {f"{scope.id} {name}"})
                )
            if name in scope.parameter_names:
                return []
        return []

    def _type_of(self, value: cst.BaseExpression, function: Function, seen: frozenset[str]) -> list[str]:
        if isinstance(value, cst.Call):
            if syntax.called(value) in self.classes.names:
                return [syntax.called(value)]
            results = [self.functions[callee].result for callee in self._resolve(value.func, function, seen)]
            return [kind for kind in map(self.classes.named, results) if kind]
        parts = syntax.dotted(value).split(".")
        classes = self._types(parts[0], function, seen) if parts != [""] else []
        for attribute in parts[1:]:
            classes = [kind for owner in classes for kind in self.classes.attribute(owner, attribute)]
        return classes

    def scopes(self, function: Function) -> list[Function]:
        """A function and those around it."""
        scopes = [function]
        while scopes[-1].owner:
            scopes.append(self.functions[scopes[-1].owner])
        return scopes

    def method(self, class_name: str, method: str) -> str:
        """The function that is a method of a class, its own or inherited, '' for none."""
        for name in self.classes.lineage(class_name):
            if f"{name}.{method}" in self.functions:
                return f"{name}.{method}"
        return ""


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for name in names if name))


def _scanned(call: cst.Call) -> cst.BaseExpression:
    """The function that a scan is given."""
    named = [argument.value for argument in call.args if argument.keyword and argument.keyword.value == "f"]
    return (named or [call.args[0].value])[0]
