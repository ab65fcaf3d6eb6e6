"""The functions of a package's definitions, and the calls of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from generator.code.tree import FUNCTIONS, TracedTree, blocks, called_name, dotted_name, parameters, walk
from generator.code.tree import Function as Node

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
    node: Node
    source: TracedTree
    twice: bool = False

    @cached_property
    def parameters(self) -> list[ast.arg]:
        return parameters(self.node)

    @cached_property
    def parameter_names(self) -> list[str]:
        return [parameter.arg for parameter in self.parameters]

    @cached_property
    def defaults(self) -> dict[ast.arg, ast.expr]:
        """Parameter -> its default, or `threaded()`."""
        return defaults_of(self.node.args)

    @cached_property
    def own(self) -> list[ast.arg]:
        return [*self.node.args.posonlyargs, *self.node.args.args]

    @cached_property
    def positional(self) -> list[ast.arg]:
        """The parameters that a call may fill by position: without `self`."""
        return self.own[1:] if self.is_member and not self.decorated("staticmethod") else self.own

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """The function and all below it."""
        return (*walk(self.node),)

    @cached_property
    def own_nodes(self) -> tuple[ast.AST, ...]:
        """The function and all below it but what functions, lambdas and classes in it hold."""
        return (*walk(self.node, into=False),)

    @cached_property
    def statements(self) -> list[ast.stmt]:
        """Its statements, those in if, for, while, with, try and match too; a nested function is one."""
        return [*_statements(self.node)]

    @property
    def is_member(self) -> bool:
        """Whether it is a method, static or not."""
        return bool(self.class_name) and not self.owner

    @property
    def is_dunder(self) -> bool:
        """Whether Python calls it by itself: `__len__`."""
        name = self.node.name
        return self.is_member and name[:2] == name[-2:] == "__" and name != "__call__"

    def asks(self, parameter: ast.arg) -> bool:
        """Whether a parameter asks for a threaded value."""
        return called_name(self.defaults.get(parameter)) == ASKED

    def has_default(self, parameter: ast.arg) -> bool:
        return parameter in self.defaults and not self.asks(parameter)

    def decorated(self, *words: str) -> bool:
        return any(dotted_name(decorator) in words for decorator in self.node.decorator_list)

    @property
    def result(self) -> str:
        return self.source.code(self.node.returns) if self.node.returns else ""

    def is_by_host(self, node: ast.AST) -> bool:
        """Whether a node in it is of the fragment that defines it: not of a splice or a provider."""
        paths = [self.source.traced.origin_at(self.source.span(n)[0]).path for n in (node, self.node)]
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
    node: ast.Call
    statement: ast.stmt
    scan: bool

    def supplies(self, function: Function, name: str) -> bool:
        """Whether the call passes the parameter `name`, by keyword or by position."""
        if any(keyword.arg == name for keyword in self.node.keywords):
            return True
        names = [parameter.arg for parameter in function.positional]
        return name in names and names.index(name) < self.positional

    @property
    def positional(self) -> int:
        return sum(not isinstance(argument, ast.Starred) for argument in self.node.args)

    @property
    def starred(self) -> bool:
        return self.positional < len(self.node.args) or any(keyword.arg is None for keyword in self.node.keywords)


def arguments(call: ast.Call) -> list[ast.expr]:
    """What a call is given, by position, by keyword or with stars."""
    own = [argument.value if isinstance(argument, ast.Starred) else argument for argument in call.args]
    return own + [keyword.value for keyword in call.keywords]


def defaults_of(args: ast.arguments) -> dict[ast.arg, ast.expr]:
    """Parameter -> its default."""
    own = [*args.posonlyargs, *args.args]
    pairs = [*zip(own[len(own) - len(args.defaults) :], args.defaults, strict=True)]
    return dict(pairs) | {p: d for p, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d is not None}


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    for block in blocks(node):
        for statement in block:
            yield statement
            if not isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                yield from _statements(statement)


def read_functions(sources: dict[str, TracedTree]) -> dict[str, Function]:
    """All functions by id; those of nested classes are not among them."""
    functions: dict[str, Function] = {}
    for key, source in sources.items():
        for function in functions_in(key, source):
            function.twice = function.id in functions
            functions[function.id] = function
    return functions


def functions_in(key: str, source: TracedTree) -> Iterator[Function]:
    """The functions of a definition."""
    for statement in source.statements:
        if isinstance(statement, ast.ClassDef):
            yield from _functions(statement.body, f"{statement.name}.", key, statement.name, "", source)
        else:
            yield from _functions([statement], prefix_of(key), key, "", "", source)


def _functions(
    statements: list[ast.stmt], prefix: str, key: str, class_name: str, owner: str, source: TracedTree
) -> Iterator[Function]:
    for node in statements:
        if isinstance(node, FUNCTIONS):
            function = Function(prefix + node.name, key, class_name, owner, node, source)
            yield function
            yield from _functions(function.statements, f"{function.id}.", key, class_name, function.id, source)


def prefix_of(key: str) -> str:
    """`generate.py:` of the definition `generate.py:main`, which other modules do not see."""
    return key.rpartition(":")[0] + ":" if ":" in key else ""
