"""The functions of a package's definitions, and the calls between them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from generator.code.tree import FUNCTIONS, TracedTree, blocks, called_name, dotted_name, parameters, walk
from generator.code.tree import Function as Node

REQUEST = "threaded"  # `segment_ids=threaded()`: a parameter that requests a threaded value


@dataclass
class Function:
    """A function, method or nested function.

    Attributes:
        id: `loss`, `Decoder.hidden`, `Decoder.hidden.block`.
        key: the definition that contains it.
        owner: id of the enclosing function of a nested one, else ''.
        is_duplicate: whether another function has the same id.
    """

    id: str
    key: str
    class_name: str
    owner: str
    node: Node
    source: TracedTree
    is_duplicate: bool = False

    @cached_property
    def parameters(self) -> list[ast.arg]:
        return parameters(self.node)

    @cached_property
    def parameter_names(self) -> list[str]:
        return [parameter.arg for parameter in self.parameters]

    @cached_property
    def defaults(self) -> dict[ast.arg, ast.expr]:
        """Parameter -> its default, or `threaded()`."""
        return read_defaults(self.node.args)

    @cached_property
    def receiver(self) -> ast.arg | None:
        """The parameter `self` of a method, or `cls`."""
        own = [*self.node.args.posonlyargs, *self.node.args.args]
        return own[0] if own and self.is_member and not self.has_decorator("staticmethod") else None

    @cached_property
    def positional(self) -> list[ast.arg]:
        """The parameters that a call may fill by position: without `self`."""
        own = [*self.node.args.posonlyargs, *self.node.args.args]
        return own[1:] if self.receiver else own

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """The function and all nodes below it."""
        return (*walk(self.node),)

    @cached_property
    def own_nodes(self) -> tuple[ast.AST, ...]:
        """The function and the nodes below it, without the contents of nested functions, lambdas and classes."""
        return (*walk(self.node, into=False),)

    @cached_property
    def statements(self) -> list[ast.stmt]:
        """Its statements, with those of its blocks; a nested function is one statement."""
        return [*_statements(self.node)]

    @property
    def is_member(self) -> bool:
        """Whether it is a method, static or not."""
        return bool(self.class_name) and not self.owner

    @property
    def is_dunder(self) -> bool:
        """Whether Python calls it implicitly: `__len__`."""
        name = self.node.name
        return self.is_member and name[:2] == name[-2:] == "__" and name != "__call__"

    def requests(self, parameter: ast.arg) -> bool:
        """Returns whether a parameter requests a threaded value."""
        return called_name(self.defaults.get(parameter)) == REQUEST

    def has_default(self, parameter: ast.arg) -> bool:
        return parameter in self.defaults and not self.requests(parameter)

    def has_decorator(self, *names: str) -> bool:
        return any(dotted_name(decorator) in names for decorator in self.node.decorator_list)

    @property
    def return_type(self) -> str:
        return self.source.code(self.node.returns) if self.node.returns else ""

    def is_from_host(self, node: ast.AST) -> bool:
        """Returns whether the fragment that defines the function wrote a node in it: not a splice or a provider."""
        return self.source.origin(node).path == self.source.origin(self.node).path

    @property
    def where(self) -> str:
        return self.source.where(self.node)


@dataclass(eq=False)
class Call:
    """A call of `callee` inside `caller`.

    Attributes:
        is_scan: whether jax.lax.scan calls it, once for each layer.
    """

    caller: str
    callee: str
    node: ast.Call
    statement: ast.stmt
    is_scan: bool

    def supplies(self, function: Function, name: str) -> bool:
        """Returns whether the call passes the parameter `name`, by keyword or by position."""
        if any(keyword.arg == name for keyword in self.node.keywords):
            return True
        return name in [parameter.arg for parameter in function.positional[: self.positional_count]]

    @property
    def positional_count(self) -> int:
        return sum(not isinstance(argument, ast.Starred) for argument in self.node.args)

    @property
    def has_stars(self) -> bool:
        return self.positional_count < len(self.node.args) or any(k.arg is None for k in self.node.keywords)


def arguments(call: ast.Call) -> list[ast.expr]:
    """Returns the arguments of a call: by position, by keyword or with stars."""
    positional = [argument.value if isinstance(argument, ast.Starred) else argument for argument in call.args]
    return positional + [keyword.value for keyword in call.keywords]


def read_defaults(args: ast.arguments) -> dict[ast.arg, ast.expr]:
    """Returns parameter -> its default."""
    positional = [*args.posonlyargs, *args.args]
    pairs = [*zip(positional[len(positional) - len(args.defaults) :], args.defaults, strict=True)]
    return dict(pairs) | {p: d for p, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d is not None}


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    for block in blocks(node):
        for statement in block:
            yield statement
            if not isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                yield from _statements(statement)


def read_functions(sources: dict[str, TracedTree]) -> dict[str, Function]:
    """Returns all functions by id, without those of nested classes."""
    functions: dict[str, Function] = {}
    for key, source in sources.items():
        for function in functions_in(key, source):
            function.is_duplicate = function.id in functions
            functions[function.id] = function
    return functions


def functions_in(key: str, source: TracedTree) -> Iterator[Function]:
    """Yields the functions of a definition."""
    for statement in source.statements:
        if isinstance(statement, ast.ClassDef):
            yield from _functions(statement.body, f"{statement.name}.", key, statement.name, "", source)
        else:
            yield from _functions([statement], module_prefix(key), key, "", "", source)


def _functions(
    statements: list[ast.stmt], prefix: str, key: str, class_name: str, owner: str, source: TracedTree
) -> Iterator[Function]:
    for node in statements:
        if isinstance(node, FUNCTIONS):
            function = Function(prefix + node.name, key, class_name, owner, node, source)
            yield function
            yield from _functions(function.statements, f"{function.id}.", key, class_name, function.id, source)


def module_prefix(key: str) -> str:
    """Returns `generate.py:` for the definition `generate.py:main`, which other modules do not see."""
    return key.rpartition(":")[0] + ":" if ":" in key else ""
