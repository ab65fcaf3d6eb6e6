"""The functions and classes of a package's definitions, and the types that they state."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import libcst as cst

from generator.code import syntax
from generator.code.names import bound_by, own_code
from generator.code.syntax import Source


@dataclass
class Function:
    """A function, method or nested function.

    Attributes:
        id: `loss`, `Decoder.hidden`, `Decoder.hidden.block`.
        key: of the definition that holds it.
        owner: id of the enclosing function of a nested one, else ''.
        types: local name -> class, where an annotation says so.
        annotations: of local names that are assigned.
        bindings: local name -> the expressions that it is assigned, where that is all that it is bound by.
        twice: whether another function has the same id.
    """

    id: str
    key: str
    class_name: str
    owner: str
    node: cst.FunctionDef
    source: Source
    types: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    bindings: dict[str, list[cst.BaseExpression]] = field(default_factory=dict)
    twice: bool = False

    @cached_property
    def parameters(self) -> list[cst.Param]:
        return syntax.parameters(self.node)

    @cached_property
    def parameter_names(self) -> list[str]:
        return [parameter.name.value for parameter in self.parameters]

    @cached_property
    def positional(self) -> list[cst.Param]:
        """The parameters that a call may fill by position: without `self`."""
        own = [*self.node.params.posonly_params, *self.node.params.params]
        return own[1:] if self.is_method else own

    @property
    def filled(self) -> list[cst.Param]:
        """The parameters that calls fill: without `self`."""
        return [*self.positional, *self.node.params.kwonly_params]

    def has_default(self, name: str) -> bool:
        """Whether calls may leave out a parameter."""
        return any(p.name.value == name and p.default is not None for p in self.parameters)

    @property
    def is_method(self) -> bool:
        static = any(syntax.dotted(decorator.decorator) == "staticmethod" for decorator in self.node.decorators)
        return bool(self.class_name) and not self.owner and not static

    @property
    def result(self) -> str:
        return self.source.code(self.node.returns.annotation) if self.node.returns else ""

    @property
    def where(self) -> str:
        return self.source.where(self.node)


class Wrapper(NamedTuple):
    """A call around a function that gives it back: what it calls, `jax.jit`, and a keyword that counts parameters."""

    word: str
    counts: str


@dataclass(eq=False)
class Call:
    """One call of `callee` inside `caller`.

    Attributes:
        scan: whether jax.lax.scan calls it, once a layer.
        wrappers: the calls around its name: `jax.jit(...)`, `jax.grad(...)`.
    """

    caller: str
    callee: str
    node: cst.Call
    statement: syntax.Statement
    scan: bool
    wrappers: tuple[Wrapper, ...] = ()

    def supplies(self, function: Function, name: str) -> bool:
        """Whether the call passes the parameter `name`, by keyword or by position."""
        if any(argument.keyword and argument.keyword.value == name for argument in self.node.args):
            return True
        names = [parameter.name.value for parameter in function.positional]
        return name in names and names.index(name) < self.positional

    @property
    def positional(self) -> int:
        return sum(1 for argument in self.node.args if not argument.keyword and not argument.star)

    @property
    def starred(self) -> bool:
        return any(argument.star for argument in self.node.args)


def read_functions(sources: dict[str, Source]) -> dict[str, Function]:
    """All functions by id; those of nested classes are not among them."""
    functions: dict[str, Function] = {}
    for key, source in sources.items():
        for statement in source.module.body:
            methods = syntax.body(statement) if isinstance(statement, cst.ClassDef) else [statement]
            class_name = statement.name.value if isinstance(statement, cst.ClassDef) else ""
            for member in methods:
                if isinstance(member, cst.FunctionDef):
                    _read_function(functions, member, key, source, class_name, "")
    names = {name for source in sources.values() for name in class_names(source)}
    for function in functions.values():
        _read_types(function, names)
    return functions


def class_names(source: Source) -> list[str]:
    return [statement.name.value for statement in source.module.body if isinstance(statement, cst.ClassDef)]


def _read_function(
    functions: dict[str, Function], node: cst.FunctionDef, key: str, source: Source, class_name: str, owner: str
) -> None:
    prefix = owner or class_name or ("" if ":" not in key else key.rsplit(":", 1)[0] + ":")
    separator = "" if prefix.endswith(":") or not prefix else "."
    function = Function(f"{prefix}{separator}{node.name.value}", key, class_name, owner, node, source)
    function.twice = function.id in functions
    functions[function.id] = function
    for statement in syntax.statements(node):
        if isinstance(statement, cst.FunctionDef):
            _read_function(functions, statement, key, source, class_name, function.id)


def _read_types(function: Function, names: set[str]) -> None:
    for parameter in function.parameters:
        if parameter.annotation:
            kind = named_class(function.source.code(parameter.annotation.annotation), names)
            if kind:
                function.types[parameter.name.value] = kind
    for statement in syntax.statements(function.node):
        small = syntax.simple(statement)
        if isinstance(small, cst.AnnAssign) and isinstance(small.target, cst.Name):
            annotation = function.source.code(small.annotation.annotation)
            function.annotations[small.target.value] = annotation
            if kind := named_class(annotation, names):
                function.types[small.target.value] = kind
        elif isinstance(small, cst.Assign):
            for target in small.targets:
                if isinstance(target.target, cst.Name):
                    function.bindings.setdefault(target.target.value, []).append(small.value)
    bound = Counter(name for node in own_code(function.node) for name in bound_by(node))
    for name, values in function.bindings.items():  # by a loop, an unpacking or a caller it may be anything
        if bound[name] > len(values) or name in function.parameter_names:
            values.clear()


def named_class(annotation: str, names: set[str]) -> str:
    """The class of an annotation: `Block`, `"Block"`, `Block | None`, `Optional[Block]`; else ''."""
    text = annotation.strip("\"' ")
    optional = re.fullmatch(r"(?:typing\.)?Optional\[(.*)\]", text)
    parts = [part.strip("\"' ") for part in (optional[1] if optional else text).split("|")]
    found = [part for part in parts if part != "None"]
    return found[0] if len(found) == 1 and found[0] in names else ""


class Classes:
    """The classes of the definitions: their bases, and the classes of their attributes."""

    def __init__(self, sources: dict[str, Source]):
        self.names = {name for source in sources.values() for name in class_names(source)}
        self.bases: dict[str, tuple[str, ...]] = {}
        self.has_config: set[str] = set()  # classes that keep their config as self.config
        self._attributes: dict[str, dict[str, list[str]]] = {}
        for source in sources.values():
            for statement in source.module.body:
                if isinstance(statement, cst.ClassDef):
                    self._read(statement, source)

    def named(self, annotation: str) -> str:
        return named_class(annotation, self.names)

    def lineage(self, name: str) -> Iterator[str]:
        """A class and those that it inherits from."""
        if name:
            yield name
        for base in self.bases.get(name, ()):
            yield from self.lineage(base)

    def attribute(self, owner: str, attribute: str) -> list[str]:
        """The classes that an attribute may have."""
        for name in self.lineage(owner):
            if attribute in self._attributes.get(name, {}):
                return self._attributes[name][attribute]
        return []

    def _read(self, node: cst.ClassDef, source: Source) -> None:
        name = node.name.value
        self.bases[name] = tuple(
            b for b in (syntax.dotted(base.value) for base in node.bases) if b in self.names - {name}
        )
        for statement in syntax.body(node):
            small = syntax.simple(statement)
            if isinstance(small, cst.AnnAssign):
                self._add(name, syntax.dotted(small.target), self.named(source.code(small.annotation.annotation)))
            if isinstance(statement, cst.FunctionDef):
                self._read_method(statement, name, source)

    def _read_method(self, method: cst.FunctionDef, class_name: str, source: Source) -> None:
        annotated = {
            p.name.value: source.code(p.annotation.annotation) for p in syntax.parameters(method) if p.annotation
        }
        for node in syntax.walk(method):
            if isinstance(node, cst.AnnAssign):
                target, kind = syntax.dotted(node.target), self.named(source.code(node.annotation.annotation))
            elif isinstance(node, cst.Assign) and len(node.targets) == 1:
                target, kind = syntax.dotted(node.targets[0].target), syntax.called(node.value)
                kind = kind if kind in self.names else self.named(annotated.get(syntax.dotted(node.value), ""))
            else:
                continue
            if target == "self.config":
                self.has_config.add(class_name)
            if target.startswith("self."):
                self._add(class_name, target.removeprefix("self."), kind)

    def _add(self, owner: str, attribute: str, kind: str) -> None:
        known = self._attributes.setdefault(owner, {}).setdefault(attribute, [])
        if kind and kind not in known:
            known.append(kind)
