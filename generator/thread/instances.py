"""Finds what is called, and may be an instance of a class whose `__call__` changes, without saying its class.

    [self.block][0](x)      jax.vmap(self.block)(x)      list(map(self.block, xs))      def apply(f, x): return f(x)

The analysis knows no order (points-to): an expression may be what anything in it is: an item of a list, a name with
what is assigned to it anywhere, a result with what the call got. A parameter without a type may be anything; one
of a type such as Callable is what calls give it, and these are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set

import libcst as cst

from generator.code import syntax
from generator.language.grammar import own_nodes
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
_PLAIN = (cst.Comparison, cst.FormattedString, cst.SimpleString, cst.Integer, cst.Float)
_Expression = tuple[cst.CSTNode, str, bool]  # an expression, the key of its definition, and whether it is called


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
        values: list[tuple[str, str, cst.BaseExpression]] = []
        for key, text in self.names.texts.items():
            values += [(attribute.attr.value, key, value) for attribute, value in text.kept]
            for (scope, name), found in text.values.items():
                if scope and isinstance(scope.node, cst.ClassDef):
                    values += [(name, key, value) for value in found]
        before = -1
        while before < len(self._attributes):
            before = len(self._attributes)
            for attribute, key, value in values:
                if attribute not in self._attributes and (kind := self.kind(value, key)):
                    self._attributes[attribute] = kind

    def called(self, keys: Iterable[str]) -> Iterator[tuple[str, cst.CSTNode, str]]:
        """Yields definition, expression and class of what is called and may be an instance, and is not followed."""
        for key in keys if self._active else ():
            for node in syntax.below(self.graph.sources[key].module, cst.Call):
                for expression in self._called_by(cst.ensure_type(node, cst.Call), key):
                    if kind := self.kind(expression, key, called=True):
                        yield key, expression, kind

    def kind(self, node: cst.CSTNode, key: str, called: bool = False) -> str:
        """The class that an expression may be an instance of, or may hold one of; else ''.

        Args:
            called: whether it is called: then the result of a lambda does not matter.
        """
        queue: list[_Expression] = [(node, key, called)]
        seen: set[_Expression] = set()
        exempt: set[cst.CSTNode] = set()  # parameters of what is called here, with arguments that are looked at
        while queue:
            expression = queue.pop()
            if expression not in seen:
                seen.add(expression)
                kind, more = self._look(*expression, exempt)
                if kind:
                    return kind
                queue += more
        return ""

    def _look(
        self, node: cst.CSTNode, key: str, called: bool, exempt: set[cst.CSTNode]
    ) -> tuple[str, list[_Expression]]:
        """The class that an expression says, or the expressions that its value may come from."""
        if type(node) in _PLAIN:
            return "", []
        if isinstance(node, cst.Name):
            return self._look_at_name(node, key, called, exempt) if self.names.is_variable(node, key) else ("", [])
        if isinstance(node, cst.Attribute):
            if node.attr.value == "__class__":
                return "", [(node.value, key, False)]
            return "" if self.names.meaning(node, key) else self._kind_of_attribute(node, key), []
        if isinstance(node, cst.Call):
            return self._look_at_call(node, key, called, exempt)
        if isinstance(node, cst.Lambda):
            exempt.update(syntax.below(node.params, cst.Param))
            return "", [] if called else [(node.body, key, False)]
        children = (node.value,) if isinstance(node, cst.Subscript) else syntax.children(node)
        return "", [(child, key, called) for child in children]

    def _look_at_name(
        self, name: cst.Name, key: str, called: bool, exempt: set[cst.CSTNode]
    ) -> tuple[str, list[_Expression]]:
        if self.graph.is_class(name, key):
            return name.value if name.value in self.kinds else "", []
        variable, there = self.names.texts[key].of(name), self.names.definition(name, key) or key
        stated = self.names.annotations(variable, key)
        if stated and not any(_ANY.search(annotation) for annotation in stated):
            return next((kind for annotation in stated if (kind := self._stated(annotation))), ""), []
        parameter = next((node for node in self.names.binds(name, key) if isinstance(node, cst.Param)), None)
        host = self.names.host(name, key)
        if parameter and host and host.is_member and parameter in host.own[:1]:
            return host.class_name if host.class_name in self.kinds else "", []
        if parameter and not stated and parameter not in exempt:
            return min(self.kinds, default=""), []
        return "", [(value, there, called) for value in self.names.texts[there].values.get(variable, ())]

    def _kind_of_attribute(self, node: cst.Attribute, key: str) -> str:
        kinds, attribute = self.graph.classes.lineage(self.graph.class_of(node.value, key)), node.attr.value
        stated = [s for kind in kinds if (s := self.graph.classes.stated.get((kind, attribute)))]
        known = stated and not _ANY.search(stated[0])
        return self._stated(stated[0]) if known else self._attributes.get(attribute, "")

    def _look_at_call(
        self, node: cst.Call, key: str, called: bool, exempt: set[cst.CSTNode]
    ) -> tuple[str, list[_Expression]]:
        """What a call gives: what its function says or returns, else something of what it got."""
        func, meaning = self.graph.unwrapped(node.func, key), self.names.meaning(node.func, key)
        if meaning == "getattr" and len(node.args) > 1:
            owner, name = (argument.value for argument in node.args[:2])
            if isinstance(name, cst.SimpleString):
                return self._attributes.get(str(name.evaluated_value), ""), []
            return "" if self.names.meaning(owner, key) or self.is_foreign(owner, key) else ANYTHING, []
        if self.graph.is_class(func, key):
            return "", [(func, key, False)]
        wraps = bool(called and _WRAPPING.fullmatch(meaning))
        more: list[_Expression] = [(argument.value, key, wraps) for argument in node.args[: 1 if wraps else None]]
        if target := self.graph.target(func, key):
            function = self.graph.functions[target]
            if function.result and not _ANY.search(function.result):
                return self._stated(function.result), []
            exempt.update(function.parameters)
            results = [part for part in own_nodes(function.node) if isinstance(part, (cst.Return, cst.Yield))]
            more += [(part.value, function.key, called) for part in results if part.value]
        elif not meaning:
            more.append((func.value if isinstance(func, cst.Attribute) else func, key, False))
        return "", more

    def is_foreign(self, node: cst.CSTNode, key: str) -> bool:
        """Whether a name is annotated to be of no class of the package."""
        if not isinstance(node, cst.Name) or not self.names.is_variable(node, key):
            return False
        stated = self.names.annotations(self.names.texts[key].of(node), key)
        return bool(stated) and not any(_ANY.search(a) or self.graph.classes.mentioned(a) for a in stated)

    def _stated(self, annotation: str) -> str:
        return min(self.graph.classes.mentioned(annotation) & self.kinds, default="")

    def _called_by(self, node: cst.Call, key: str) -> Iterator[cst.BaseExpression]:
        """What a call calls: the expression itself, and what a library calls of what it is given."""
        func, meaning = self.graph.unwrapped(node.func, key), self.names.meaning(node.func, key)
        positional = [argument.value for argument in node.args if not argument.keyword]
        if meaning == "setattr":
            yield from positional[2:]
        if (key, func) in self.graph.followed:
            yield from self._given_as_any(node, self.graph.target(func, key))
            return
        made = self.graph.is_class(func, key) and syntax.dotted(func)
        if not made or self.graph.classes.methods(made, "__init__"):
            yield func
        sends = isinstance(node.func, cst.Attribute) and _SENDING.fullmatch(node.func.attr.value)
        places = (0,) if sends or _CALLING.fullmatch(meaning) else _PLACES.get(meaning, ())
        found = [positional[place] for place in places if place < len(positional)]
        if meaning or syntax.dotted(node.func).endswith(".sort"):
            found += [a.value for a in node.args if a.keyword and _CALLED.fullmatch(a.keyword.value)]
        for argument in (self.graph.unwrapped(argument, key) for argument in found):
            if not isinstance(argument, cst.Lambda) and (key, argument) not in self.graph.followed:
                yield argument

    def _given_as_any(self, node: cst.Call, target: str) -> Iterator[cst.BaseExpression]:
        """The arguments for parameters that are called, and whose type does not say what they are."""
        function = self.graph.functions[target]
        called = {syntax.called(inner) for inner in syntax.below(function.node, cst.Call)}
        opaque = set()
        for parameter in function.parameters:
            name = parameter.name.value
            stated = function.source.code(parameter.annotation.annotation) if parameter.annotation else ""
            if _ANY.search(stated) and (name in called or "Callable" in stated):
                opaque.add(name)
        names = [parameter.name.value for parameter in function.positional]
        for number, argument in enumerate(node.args):
            name = argument.keyword.value if argument.keyword else "".join(names[number : number + 1])
            if name in opaque and not isinstance(argument.value, cst.Lambda):
                yield argument.value
