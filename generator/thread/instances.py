"""Finds what is called, and may be an instance of a class whose `__call__` changes, without saying its class.

    [self.block][0](x)      jax.vmap(self.block)(x)      list(map(self.block, xs))      def apply(f, x): return f(x)

The analysis knows no order (points-to): an expression may be what anything in it is: an item of a list, a name with
what is assigned to it anywhere, a result with what the call got. A parameter without a type may be anything; one
of a type such as Callable is what calls give it, and these are looked at.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Set

from generator.code.tree import called_name, children, dotted_name, walk
from generator.thread.functions import arguments
from generator.thread.graph import CallGraph

ANYTHING = "*"  # in place of a class: a method whose name is computed
_ANY = re.compile(r"\b(Any|Callable|object|Module)\b|^(list|tuple|dict|set)$")  # annotations that may be anything
_WRAPPING = re.compile(  # functions of libraries that give back a function which calls what they are given first
    r"functools\.partial|jax\.experimental\.pallas\.pallas_call|(jax|flax\.nnx)\.(jit|[vp]map|scan|remat|checkpoint|shard_map|(value_and_)?grad|jac\w+|hessian)"
)
# Functions of libraries that call what they are given first, or elsewhere, and what methods of pools do.
_CALLING = re.compile(
    r"(map|filter|jax\.tree\.map|jax\.tree_util\.tree_map|jax\.(eval_shape|vjp|jvp|linearize))"
    r"|jax\.lax\.(map|associative_scan|scan)|(functools|itertools|operator)\.\w+"
)
_SENDING = re.compile(r"submit|map|starmap|apply|apply_async|imap")
_PLACES = {"jax.lax.cond": (1, 2), "jax.lax.switch": (1,), "jax.lax.fori_loop": (2,), "jax.lax.while_loop": (0, 1)}
_CALLED = re.compile(r"key|f|fun|func|function|fn|\w+_(fun|fn|func)|default_factory|target|callback|initializer|hook")
_Expression = tuple[ast.AST, str, bool]  # an expression, the key of its definition, and whether it is called


class Instances:
    """The expressions that may be instances of some classes.

    Args:
        kinds: the classes.
        methods: whether methods count too, of whatever class, where their names are computed.
    """

    def __init__(self, graph: CallGraph, kinds: Set[str], methods: bool):
        self.graph, self.names, self.kinds = graph, graph.names, kinds
        self._active = bool(kinds) or methods
        self._attributes: dict[str, str] = {}  # attribute -> class
        if self._active:
            self._read_attributes()

    def _read_attributes(self) -> None:
        """Finds the attributes that may be instances: what one is given, another may have."""
        for (_, attribute), annotation in self.graph.classes.stated.items():
            if kind := self._stated(annotation):
                self._attributes[attribute] = kind
        values: list[tuple[str, str, ast.expr]] = []
        for key, text in self.names.texts.items():
            values += [(attribute.attr, key, value) for attribute, value in text.kept]
            for (scope, name), found in text.values.items():
                if scope and isinstance(scope.node, ast.ClassDef):
                    values += [(name, key, value) for value in found]
        before = -1
        while before < len(self._attributes):
            before = len(self._attributes)
            for attribute, key, value in values:
                if attribute not in self._attributes and (kind := self.kind(value, key)):
                    self._attributes[attribute] = kind

    def called(self, keys: Iterable[str]) -> Iterator[tuple[str, ast.AST, str]]:
        """Yields definition, expression and class of what is called and may be an instance, and is not followed."""
        for key in keys if self._active else ():
            for node in (node for node in self.names.texts[key].nodes if isinstance(node, ast.Call)):
                for expression in self._called_by(node, key):
                    if kind := self.kind(expression, key, called=True):
                        yield key, expression, kind

    def kind(self, node: ast.AST, key: str, called: bool = False) -> str:
        """The class that an expression may be an instance of, or may hold one of; else ''.

        Args:
            called: whether it is called: then the result of a lambda does not matter.
        """
        queue: list[_Expression] = [(node, key, called)]
        seen: set[_Expression] = set()
        exempt: set[ast.AST] = set()  # parameters of what is called here, with arguments that are looked at
        while queue:
            expression = queue.pop()
            if expression not in seen:
                seen.add(expression)
                kind, more = self._look(*expression, exempt)
                if kind:
                    return kind
                queue += more
        return ""

    def _look(self, node: ast.AST, key: str, called: bool, exempt: set[ast.AST]) -> tuple[str, list[_Expression]]:
        """The class that an expression says, or the expressions that its value may come from."""
        match node:
            case ast.Compare() | ast.JoinedStr() | ast.Constant():
                return "", []
            case ast.Name():
                return self._look_at_name(node, key, called, exempt)
            case ast.Attribute(value, "__class__"):
                return "", [(value, key, False)]
            case ast.Attribute():
                return "" if self.names.meaning(node, key) else self._kind_of_attribute(node, key), []
            case ast.Call():
                return self._look_at_call(node, key, called, exempt)
            case ast.Lambda(args, body):
                exempt.update(walk(args))
                return "", [] if called else [(body, key, False)]
            case ast.Subscript(value):
                return "", [(value, key, called)]
        return "", [(child, key, called) for child in children(node)]

    def _look_at_name(
        self, name: ast.Name, key: str, called: bool, exempt: set[ast.AST]
    ) -> tuple[str, list[_Expression]]:
        if self.graph.is_class(name, key):
            return name.id if name.id in self.kinds else "", []
        variable, there = self.names.texts[key].of(name), self.names.definition(name, key) or key
        stated = self.names.annotations(variable, key)
        if stated and not any(_ANY.search(annotation) for annotation in stated):
            return next((kind for annotation in stated if (kind := self._stated(annotation))), ""), []
        parameter = next((node for node in self.names.binds(variable, key) if isinstance(node, ast.arg)), None)
        host = self.names.host(variable, key)
        if parameter and host and host.is_member and parameter in host.own[:1]:
            return host.class_name if host.class_name in self.kinds else "", []
        if parameter and not stated and parameter not in exempt:
            return min(self.kinds, default=""), []
        return "", [(value, there, called) for value in self.names.texts[there].values.get(variable, ())]

    def _kind_of_attribute(self, node: ast.Attribute, key: str) -> str:
        kinds, attribute = self.graph.classes.lineage(self.graph.class_of(node.value, key)), node.attr
        stated = [s for kind in kinds if (s := self.graph.classes.stated.get((kind, attribute)))]
        known = stated and not _ANY.search(stated[0])
        return self._stated(stated[0]) if known else self._attributes.get(attribute, "")

    def _look_at_call(
        self, node: ast.Call, key: str, called: bool, exempt: set[ast.AST]
    ) -> tuple[str, list[_Expression]]:
        """What a call gives: what its function says or returns, else something of what it got."""
        func, meaning = self.graph.unwrapped(node.func, key), self.names.meaning(node.func, key)
        given = arguments(node)
        if meaning == "getattr" and len(given) > 1:
            owner, name = given[:2]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                return self._attributes.get(name.value, ""), []
            return "" if self.names.meaning(owner, key) or self.is_foreign(owner, key) else ANYTHING, []
        if self.graph.is_class(func, key):
            return "", [(func, key, False)]
        wraps = bool(called and _WRAPPING.fullmatch(meaning))
        more: list[_Expression] = [(argument, key, wraps) for argument in given[: 1 if wraps else None]]
        if target := self.graph.target(func, key):
            function = self.graph.functions[target]
            if function.result and not _ANY.search(function.result):
                return self._stated(function.result), []
            exempt.update(function.parameters)
            results = [part for part in function.own_nodes if isinstance(part, (ast.Return, ast.Yield, ast.YieldFrom))]
            more += [(part.value, function.key, called) for part in results if part.value]
        elif not meaning:
            more.append((func.value if isinstance(func, ast.Attribute) else func, key, False))
        return "", more

    def is_foreign(self, node: ast.AST, key: str) -> bool:
        """Whether a name is annotated to be of no class of the package."""
        if not isinstance(node, ast.Name):
            return False
        stated = self.names.annotations(self.names.texts[key].of(node), key)
        return bool(stated) and not any(_ANY.search(a) or self.graph.classes.mentioned(a) for a in stated)

    def _stated(self, annotation: str) -> str:
        return min(self.graph.classes.mentioned(annotation) & self.kinds, default="")

    def _called_by(self, node: ast.Call, key: str) -> Iterator[ast.expr]:
        """What a call calls: the expression itself, and what a library calls of what it is given."""
        func, meaning = self.graph.unwrapped(node.func, key), self.names.meaning(node.func, key)
        positional, named = _given(node)
        if meaning == "setattr":
            yield from positional[2:]
        if (key, func) in self.graph.followed:
            yield from self._given_as_any(node, self.graph.target(func, key))
            return
        made = self.graph.is_class(func, key) and dotted_name(func)
        if not made or self.graph.classes.methods(made, "__init__"):
            yield func
        sends = isinstance(node.func, ast.Attribute) and _SENDING.fullmatch(node.func.attr)
        places = (0,) if sends or _CALLING.fullmatch(meaning) else _PLACES.get(meaning, ())
        found = [positional[place] for place in places if place < len(positional)]
        if meaning or dotted_name(node.func).endswith(".sort"):
            found += [value for name, value in named if _CALLED.fullmatch(name)]
        for argument in (self.graph.unwrapped(argument, key) for argument in found):
            if not isinstance(argument, ast.Lambda) and (key, argument) not in self.graph.followed:
                yield argument

    def _given_as_any(self, node: ast.Call, target: str) -> Iterator[ast.expr]:
        """The arguments for parameters that are called, and whose type does not say what they are."""
        function = self.graph.functions[target]
        used = {called_name(inner) for inner in function.nodes}
        opaque = set()
        for parameter in function.parameters:
            stated = function.source.code(parameter.annotation) if parameter.annotation else ""
            if _ANY.search(stated) and (parameter.arg in used or "Callable" in stated):
                opaque.add(parameter.arg)
        positional, named = _given(node)
        named += zip((parameter.arg for parameter in function.positional), positional, strict=False)
        yield from (value for name, value in named if name in opaque and not isinstance(value, ast.Lambda))


def _given(call: ast.Call) -> tuple[list[ast.expr], list[tuple[str, ast.expr]]]:
    """The arguments of a call by position or with stars, and those by keyword."""
    named = [(keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg]
    return [value for value in arguments(call) if not any(value is it for _, it in named)], named
