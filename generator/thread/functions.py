"""The functions and classes of a package's definitions, and the types that they state."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import libcst as cst

from generator.code import syntax
from generator.code.syntax import Source
from generator.errors import LoomError


@dataclass
class Function:
    """A function, method or nested function.

    Attributes:
        id: `loss`, `Decoder.hidden`, `Decoder.hidden.block`.
        key: of the definition that holds it.
        owner: id of the enclosing function of a nested one, else ''.
        twice: whether another function has the same id.
    """

    id: str
    key: str
    class_name: str
    owner: str
    node: cst.FunctionDef
    source: Source
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
        return self.is_member and not self.decorated("staticmethod")

    @property
    def is_member(self) -> bool:
        """Whether it is a method, static or not."""
        return bool(self.class_name) and not self.owner

    @property
    def is_dunder(self) -> bool:
        """Whether Python calls it by itself: `__len__`."""
        name = self.node.name.value
        return self.is_member and name[:2] == name[-2:] == "__" and name != "__call__"

    def decorated(self, *words: str) -> bool:
        return any(syntax.dotted(decorator.decorator) in words for decorator in self.node.decorators)

    @property
    def result(self) -> str:
        return self.source.code(self.node.returns.annotation) if self.node.returns else ""

    @property
    def path(self) -> str:
        """The fragment that it is of."""
        return self.path_of(self.node.name)

    def path_of(self, node: cst.CSTNode) -> str:
        """The fragment that a node in it is of."""
        return self.source.traced.origin_at(self.source.span(node)[0]).path

    @property
    def where(self) -> str:
        return self.source.where(self.node)


class Wrapper(NamedTuple):
    """A call around a function that gives it back: what it calls, `jax.jit`, and what else it is given."""

    word: str
    arguments: tuple[cst.Arg, ...] = ()


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
    return functions


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


def named_class(annotation: str, names: Set[str]) -> str:
    """The class of an annotation: `Block`, `"Block"`, `Block | None`, `Optional[Block]`; else ''."""
    text = annotation.strip("\"' ")
    optional = re.fullmatch(r"(?:typing\.)?Optional\[(.*)\]", text)
    parts = [part.strip("\"' ") for part in (optional[1] if optional else text).split("|")]
    found = [part for part in parts if part != "None"]
    return found[0] if len(found) == 1 and found[0] in names else ""


class Classes:
    """The classes of the definitions: their bases, and what their attributes are given.

    Attributes:
        names: of all classes.
        has_config: classes that keep their config as self.config.
        stated: class and attribute -> the annotation of the attribute.
        attributes: those that are stated, of whatever class.
        given: attribute -> key, target and value of each assignment, whatever it is an attribute of.
    """

    def __init__(self, sources: dict[str, Source]):
        self._bases: dict[str, list[str]] = {}
        self._kinds: dict[str, type] = {}
        self._where: dict[str, str] = {}
        self.has_config: set[str] = set()
        self.stated: dict[tuple[str, str], str] = {}
        self.given: dict[str, list[tuple[str, cst.Attribute, cst.BaseExpression | None]]] = {}
        for key, source in sources.items():
            for statement in source.module.body:
                if isinstance(statement, cst.ClassDef):
                    self._read(statement, source)
            for node in syntax.below(source.module, *ASSIGNING):
                self._read_targets(node, key)
        self.names = frozenset(self._bases)
        self.attributes = frozenset(attribute for _, attribute in self.stated)
        orders = {name: self._order(name, ()).__mro__ for name in sorted(self.names)}
        self._lineages = {name: [kind.__name__ for kind in order[:-1]] for name, order in orders.items()}
        self._families: dict[str, list[str]] = {}
        for name, lineage in self._lineages.items():
            for base in lineage:
                self._families.setdefault(base, []).append(name)

    def lineage(self, name: str) -> list[str]:
        """A class and those that it inherits from, in the order in which Python looks for a method."""
        return self._lineages[name] if name else []

    def family(self, name: str) -> list[str]:
        """A class and those that inherit from it."""
        return self._families.get(name, [])

    def named(self, annotation: str) -> str:
        return named_class(annotation, self.names)

    def mentioned(self, annotation: str) -> list[str]:
        """The classes that an annotation names: `list[Block]`."""
        return sorted(self.names & set(re.findall(r"\w+", annotation)))

    def _order(self, name: str, inside: tuple[str, ...]) -> type:
        if name not in self._kinds:
            try:
                if name in inside:
                    raise TypeError
                bases = [self._order(base, (*inside, name)) for base in self._bases[name] if base in self.names]
                self._kinds[name] = type(name, tuple(bases), {})
            except TypeError:
                remedy = "Let it inherit from one class."
                raise LoomError(f"the bases of {name} have no order", self._where[name], remedy) from None
        return self._kinds[name]

    def _read(self, node: cst.ClassDef, source: Source) -> None:
        name = node.name.value
        self._where[name] = source.where(node)
        self._bases[name] = [syntax.dotted(base.value) for base in node.bases]
        for below in syntax.below(node, cst.AnnAssign, cst.Assign):
            target = syntax.dotted(next(targets_of(below)))
            if target == "self.config":
                self.has_config.add(name)
            if isinstance(below, cst.AnnAssign) and target.startswith("self."):
                self.stated[name, target.removeprefix("self.")] = source.code(below.annotation.annotation)
        for statement in syntax.body(node):
            small = syntax.simple(statement)
            if isinstance(small, cst.AnnAssign):
                self.stated[name, syntax.dotted(small.target)] = source.code(small.annotation.annotation)
            elif isinstance(small, cst.Assign):
                for assigned in small.targets:
                    self.stated.setdefault((name, syntax.dotted(assigned.target)), "")

    def _read_targets(self, node: cst.CSTNode, key: str) -> None:
        """Of `x.a = value` the value; of `x.a, y = ...` and the like nothing that says more."""
        value = node.value if isinstance(node, (cst.Assign, cst.AnnAssign)) else None
        for target in targets_of(node):
            for part in (target, *parts_of(target)):
                if isinstance(part, cst.Attribute):
                    whole = value if part is target else None
                    self.given.setdefault(part.attr.value, []).append((key, part, whole))


ASSIGNING = (cst.Assign, cst.WithItem, cst.AnnAssign, cst.AugAssign, cst.NamedExpr, cst.For, cst.CompFor, cst.Del)


def targets_of(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """What a node assigns to, or deletes."""
    if type(node) not in ASSIGNING:  # isinstance takes long for libcst's nodes
        return
    if isinstance(node, cst.Assign):
        yield from (target.target for target in node.targets)
    elif isinstance(node, cst.WithItem):
        yield from [node.asname.name] if node.asname else []
    elif isinstance(node, (cst.AnnAssign, cst.AugAssign, cst.NamedExpr, cst.For, cst.CompFor, cst.Del)):
        yield node.target


def parts_of(target: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The targets in a tuple of them."""
    for element in target.elements if isinstance(target, (cst.Tuple, cst.List)) else ():
        yield element.value
        yield from parts_of(element.value)
