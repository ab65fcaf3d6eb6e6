"""Who calls whom, read from what good code says anyway.

`self.attention = Attention(...)` in a class gives the type of `self.attention`; an annotation gives the type of a
parameter (`layer: Block`); a function is called by its name; a nested function is called where `jax.lax.scan` gets it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from generator import syntax
from generator.fragment import Definition
from generator.syntax import Source

# Calls that give back their first argument, to be called in the same way.
_WRAPPERS = frozenset(
    f"{module}{name}"
    for module in ("jax.", "nnx.", "")
    for name in ("checkpoint", "remat", "jit", "grad", "value_and_grad")
)
_SCANS = frozenset({"jax.lax.scan", "lax.scan"})


@dataclass
class Function:
    """A function, method or nested function.

    Attributes:
        id: `loss`, `Decoder.hidden`, `Decoder.hidden.block`.
        key: of the definition that holds it.
        owner: id of the enclosing function of a nested one, else ''.
        types: local name -> class.
    """

    id: str
    key: str
    class_name: str
    owner: str
    node: cst.FunctionDef
    source: Source
    types: dict[str, str] = field(default_factory=dict)

    @property
    def parameters(self) -> list[cst.Param]:
        return syntax.parameters(self.node)

    @property
    def parameter_names(self) -> list[str]:
        return [parameter.name.value for parameter in self.parameters]

    @property
    def where(self) -> str:
        return self.source.where(self.node.name)


@dataclass
class CallSite:
    """One call of `callee` inside `caller`; `scan` where jax.lax.scan calls it once a layer."""

    caller: str
    callee: str
    node: cst.Call
    statement: cst.BaseStatement
    scan: bool

    def supplies(self, function: Function, name: str) -> bool:
        """Whether the call passes the parameter `name`, by keyword or by position."""
        if any(argument.keyword and argument.keyword.value == name for argument in self.node.args):
            return True
        names = [p for p in function.parameter_names if p != "self"]
        return name in names and names.index(name) < self.positional

    @property
    def positional(self) -> int:
        return sum(1 for argument in self.node.args if not argument.keyword and not argument.star)


class CallGraph:
    """All functions of the selected definitions and the calls between them."""

    def __init__(self, definitions: dict[str, Definition]):
        self.functions: dict[str, Function] = {}
        self.attributes: dict[str, dict[str, str]] = {}  # class -> attribute -> class
        self.has_config: set[str] = set()  # classes that keep their config as self.config
        self.calls: list[CallSite] = []
        self.sources = {key: Source(definition.text) for key, definition in definitions.items()}
        self._classes = {
            statement.name.value
            for source in self.sources.values()
            for statement in source.module.body
            if isinstance(statement, cst.ClassDef)
        }
        for key, source in self.sources.items():
            for statement in source.module.body:
                if isinstance(statement, cst.ClassDef):
                    self._read_class(statement, key, source)
                elif isinstance(statement, cst.FunctionDef):
                    self._read_function(statement, key, source, "", "")
        for function in list(self.functions.values()):
            self._read_calls(function)

    def callers(self, callee: str) -> list[CallSite]:
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

    def _read_class(self, node: cst.ClassDef, key: str, source: Source) -> None:
        name = node.name.value
        attributes = self.attributes.setdefault(name, {})
        for statement in syntax.body(node):
            if isinstance(statement, cst.FunctionDef):
                self._read_function(statement, key, source, name, "")
                self._read_attributes(statement, name, attributes)

    def _read_attributes(self, method: cst.FunctionDef, class_name: str, attributes: dict[str, str]) -> None:
        for node in syntax.walk(method):
            if isinstance(node, cst.Assign) and len(node.targets) == 1:
                target, value = syntax.dotted(node.targets[0].target), node.value
                if target == "self.config":
                    self.has_config.add(class_name)
                if target.startswith("self.") and syntax.called(value) in self._classes:
                    attributes[target.removeprefix("self.")] = syntax.called(value)

    def _read_function(self, node: cst.FunctionDef, key: str, source: Source, class_name: str, owner: str) -> None:
        prefix = owner or class_name or ("" if ":" not in key else key.rsplit(":", 1)[0] + ":")
        separator = "" if prefix.endswith(":") or not prefix else "."
        function = Function(f"{prefix}{separator}{node.name.value}", key, class_name, owner, node, source)
        self.functions[function.id] = function
        for parameter in function.parameters:
            if parameter.annotation:
                annotation = source.code(parameter.annotation.annotation).strip("\"'")
                if annotation in self._classes:
                    function.types[parameter.name.value] = annotation
        for statement in _statements(node):
            small = syntax.simple(statement)
            if isinstance(small, cst.Assign) and isinstance(small.targets[0].target, cst.Name):
                if syntax.called(small.value) in self._classes:
                    function.types[small.targets[0].target.value] = syntax.called(small.value)
            if isinstance(statement, cst.FunctionDef):
                self._read_function(statement, key, source, class_name, function.id)

    def _read_calls(self, function: Function) -> None:
        for statement in _statements(function.node):
            if isinstance(statement, cst.FunctionDef):
                continue
            for node in _own_expressions(statement):
                if not isinstance(node, cst.Call):
                    continue
                if syntax.called(node) in _SCANS and node.args:
                    callee, scan = self._resolve(_unwrap(node.args[0].value), function), True
                else:
                    callee, scan = self._resolve(_unwrap(node.func), function), False
                if callee:
                    self.calls.append(CallSite(function.id, callee, node, statement, scan))

    def _resolve(self, target: cst.BaseExpression, function: Function) -> str:
        """The id of the function that `target(...)` calls, or ''."""
        name = syntax.dotted(target)
        parts = name.split(".")
        if not name:
            return ""
        if len(parts) == 1:
            for scope in self._scopes(function):
                if f"{scope.id}.{name}" in self.functions:
                    return f"{scope.id}.{name}"
                if name in scope.types:
                    return self._method(scope.types[name], "__call__")
            if name in self._classes:
                return self._method(name, "__init__")
            local = f"{function.key.rsplit(':', 1)[0]}:{name}" if ":" in function.key else name
            return local if local in self.functions else name if name in self.functions else ""
        base = function.class_name if parts[0] == "self" else self._type_of(parts[0], function)
        for attribute in parts[1:-1]:
            base = self.attributes.get(base, {}).get(attribute, "")
        last = self.attributes.get(base, {}).get(parts[-1], "")
        return self._method(last, "__call__") if last else self._method(base, parts[-1])

    def _scopes(self, function: Function) -> list[Function]:
        scopes = [function]
        while scopes[-1].owner:
            scopes.append(self.functions[scopes[-1].owner])
        return scopes

    def _type_of(self, name: str, function: Function) -> str:
        return next((scope.types[name] for scope in self._scopes(function) if name in scope.types), "")

    def _method(self, class_name: str, method: str) -> str:
        name = f"{class_name}.{method}"
        return name if name in self.functions else ""


def _unwrap(node: cst.BaseExpression) -> cst.BaseExpression:
    while isinstance(node, cst.Call) and syntax.called(node) in _WRAPPERS and node.args:
        node = node.args[0].value
    return node


def _statements(function: cst.FunctionDef | cst.BaseCompoundStatement) -> list[cst.BaseStatement]:
    """The statements of a function, those inside if, for, while, with and try included, nested functions as one."""
    found = []

    def visit(block: cst.CSTNode) -> None:
        for child in syntax.children(block):
            if isinstance(child, (cst.SimpleStatementLine, cst.FunctionDef, cst.ClassDef)):
                found.append(child)
            elif isinstance(child, cst.BaseCompoundStatement):
                found.append(child)
                visit(child)
            elif isinstance(child, (cst.IndentedBlock, cst.Else, cst.Finally, cst.ExceptHandler)):
                visit(child)

    visit(function)
    return found


def _own_expressions(statement: cst.BaseStatement) -> list[cst.CSTNode]:
    """The nodes of a statement, without those of the statements inside it."""
    found = []

    def visit(node: cst.CSTNode) -> None:
        found.append(node)
        for child in syntax.children(node):
            if not isinstance(child, (cst.BaseSuite, cst.Else, cst.Finally, cst.ExceptHandler)) and not (
                isinstance(statement, cst.If) and child is statement.orelse
            ):
                visit(child)

    visit(statement)
    return found
