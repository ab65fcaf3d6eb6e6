"""The functions of a package's definitions, and the calls of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from generator.code import syntax
from generator.code.syntax import Source

ASKED = "threaded"  # `segment_ids=threaded()`: a parameter that asks for a threaded value


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
    def own(self) -> list[cst.Param]:
        return [*self.node.params.posonly_params, *self.node.params.params]

    @cached_property
    def positional(self) -> list[cst.Param]:
        """The parameters that a call may fill by position: without `self`."""
        return self.own[1:] if self.is_member and not self.decorated("staticmethod") else self.own

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

    def is_by_host(self, node: cst.CSTNode) -> bool:
        """Whether a node in it is of the fragment that defines it: not of a splice or a provider."""
        paths = [self.source.traced.origin_at(self.source.span(n)[0]).path for n in (node, self.node.name)]
        return paths[0] == paths[1]

    @property
    def where(self) -> str:
        return self.source.where(self.node)


@dataclass(eq=False)
class Call:
    """One call of `callee` inside `caller`.

    Attributes:
        scan: whether jax.lax.scan calls it, once a layer.
    """

    caller: str
    callee: str
    node: cst.Call
    statement: syntax.Statement
    scan: bool

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


def asks(parameter: cst.Param) -> bool:
    """Whether a parameter asks for a threaded value."""
    return syntax.called(parameter.default) == ASKED


def has_default(parameter: cst.Param) -> bool:
    return parameter.default is not None and not asks(parameter)


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
    prefix = f"{owner or class_name}." if owner or class_name else prefix_of(key)
    function = Function(f"{prefix}{node.name.value}", key, class_name, owner, node, source)
    function.twice = function.id in functions
    functions[function.id] = function
    for statement in syntax.statements(node):
        if isinstance(statement, cst.FunctionDef):
            _read_function(functions, statement, key, source, class_name, function.id)


def prefix_of(key: str) -> str:
    """`generate.py:` of the definition `generate.py:main`, which other modules do not see."""
    return key.rpartition(":")[0] + ":" if ":" in key else ""
