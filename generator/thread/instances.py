"""What is called, and may be an instance of a class whose `__call__` changes, though it does not say its class.

    [self.block][0](x)      jax.vmap(self.block)(x)      list(map(self.block, xs))      def apply(f, x): return f(x)

An expression may be what anything in it is: an item of a list, a name with what is assigned to it, a result with what
the call got. A parameter without a type may be anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set

import libcst as cst

from generator.code import syntax
from generator.code.memory import remembered
from generator.language.grammar import own_nodes
from generator.thread.graph import CallGraph
from generator.thread.names import READ, gifts

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


class Instances:
    """Knows which expressions may be instances of some classes.

    Args:
        kinds: the classes.
        methods: whether methods count too, of whatever class, where their names are computed.
    """

    def __init__(self, graph: CallGraph, kinds: Set[str], methods: bool):
        self.graph, self.names, self.kinds = graph, graph.names, kinds
        self._active = bool(kinds) or methods
        self._attributes: dict[str, str] = {}  # attribute -> class
        for (_, attribute), annotation in graph.classes.stated.items() if self._active else ():
            if named := self._stated(annotation):
                self._attributes[attribute] = named
        values = list[tuple[str, str, cst.BaseExpression]]()
        for key, source in graph.sources.items() if self._active else ():
            values += [(attribute, key, value) for attribute, value in _attribute_gifts(source.module)]
            for (scope, name), given in self.names.texts[key].given.items():
                if scope and isinstance(scope.node, cst.ClassDef):
                    values += [(name, key, value) for value in given]
        before = -1
        while before < len(self._attributes):  # what one attribute is given, another may have
            before = len(self._attributes)
            for attribute, key, value in values:
                if attribute not in self._attributes and (kind := self.kind(value, key)):
                    self._attributes[attribute] = kind

    def called(self, keys: Iterable[str]) -> Iterator[tuple[str, cst.CSTNode, str]]:
        """Yields definition, expression and class of what is called and may be an instance, and is not followed."""
        for key in keys if self._active else ():
            nodes = syntax.below(self.graph.sources[key].module, cst.Call)
            calls = (node for node in nodes if isinstance(node, cst.Call))
            for expression in (called for node in calls for called in self._calls(node, key)):
                if kind := self.kind(expression, key, called=True):
                    yield key, expression, kind

    def kind(self, node: cst.CSTNode, key: str, called: bool = False, seen: frozenset[object] = frozenset()) -> str:
        """The class that an expression may be an instance of, or may hold one of; else ''.

        Args:
            called: whether it is called: then what a lambda gives is no matter.
            seen: what it depends on.
        """
        if node in seen or type(node) in _PLAIN:
            return ""
        seen |= {node}
        if isinstance(node, cst.Name):
            return self._kind_of_name(node, key, called, seen)
        if isinstance(node, cst.Attribute):
            if node.attr.value == "__class__":
                return self.kind(node.value, key, False, seen)
            return "" if self.names.meaning(node, key) else self._kind_of_attribute(node, key)
        if isinstance(node, cst.Call):
            return self._kind_of_result(node, key, called, seen)
        if isinstance(node, cst.Lambda):  # its parameters are what the call gives it
            seen |= set(syntax.below(node.params, cst.Param))
            return "" if called else self.kind(node.body, key, False, seen)
        children = (node.value,) if isinstance(node, cst.Subscript) else syntax.children(node)
        return self._among([(child, key, called) for child in children], seen)

    def _among(self, nodes: Iterable[tuple[cst.CSTNode, str, bool]], seen: frozenset[object]) -> str:
        return next((kind for node, key, called in nodes if (kind := self.kind(node, key, called, seen))), "")

    def _kind_of_name(self, name: cst.Name, key: str, called: bool, seen: frozenset[object]) -> str:
        if name not in self.names.texts[key].standing:
            return ""
        if self.graph.is_class(name, key):
            return name.value if name.value in self.kinds else ""
        variable, there = self.names.texts[key].of(name), self.names.definition(name, key) or key
        binding, stated = self.names.binds(name, key), self.names.annotations(variable, key)
        if stated and not any(_ANY.search(annotation) for annotation in stated):
            return next((kind for annotation in stated if (kind := self._stated(annotation))), "")
        parameter = next((node for node in binding if isinstance(node, cst.Param)), None)
        if parameter in seen or variable in seen:
            return ""
        host = self.names.host(name, key)
        if parameter and host and host.is_member and parameter in host.own[:1]:
            return host.class_name if host.class_name in self.kinds else ""
        if parameter and not stated:
            return min(self.kinds, default="")
        given = self.names.texts[there].given.get(variable, ())
        return self._among([(value, there, called) for value in given], seen | {variable})

    def _kind_of_attribute(self, node: cst.Attribute, key: str) -> str:
        kinds, attribute = self.graph.classes.lineage(self.graph.class_of(node.value, key)), node.attr.value
        stated = [s for kind in kinds if (s := self.graph.classes.stated.get((kind, attribute)))]
        known = stated and not _ANY.search(stated[0])
        return self._stated(stated[0]) if known else self._attributes.get(attribute, "")

    def _kind_of_result(self, node: cst.Call, key: str, called: bool, seen: frozenset[object]) -> str:
        func, meaning, function = self.graph.unwrapped(node.func, key), self.names.meaning(node.func, key), None
        if meaning == "getattr" and len(node.args) > 1:
            owner, name = (argument.value for argument in node.args[:2])
            if isinstance(name, cst.SimpleString):
                return self._attributes.get(str(name.evaluated_value), "")
            return "" if self.names.meaning(owner, key) or self.is_foreign(owner, key) else ANYTHING
        if self.graph.is_class(func, key):
            return self.kind(func, key, False, seen)
        if target := self.graph.target(func, key):
            function = self.graph.functions[target]
            if function.result and not _ANY.search(function.result):
                return self._stated(function.result)
        wraps = bool(called and _WRAPPING.fullmatch(meaning))
        nodes: list[tuple[cst.CSTNode, str, bool]]
        nodes = [(argument.value, key, wraps) for argument in node.args[: 1 if wraps else None]]
        nodes += [] if function or meaning else [(func.value if isinstance(func, cst.Attribute) else func, key, False)]
        if function:
            seen |= set(function.parameters)
            given = [part for part in own_nodes(function.node) if isinstance(part, (cst.Return, cst.Yield))]
            nodes += [(part.value, function.key, called) for part in given if part.value]
        return self._among(nodes, seen)

    def is_foreign(self, node: cst.CSTNode, key: str) -> bool:
        """Whether a name is annotated to be of no class of the package."""
        if not isinstance(node, cst.Name) or node not in self.names.texts[key].standing:
            return False
        stated = self.names.annotations(self.names.texts[key].of(node), key)
        return bool(stated) and not any(_ANY.search(a) or self.graph.classes.mentioned(a) for a in stated)

    def _stated(self, annotation: str) -> str:
        return min(self.graph.classes.mentioned(annotation) & self.kinds, default="")

    def _calls(self, node: cst.Call, key: str) -> Iterator[cst.BaseExpression]:
        """What a call calls: the expression itself, and what a library calls of what it is given."""
        called, meaning = self.graph.unwrapped(node.func, key), self.names.meaning(node.func, key)
        given = [argument.value for argument in node.args if not argument.keyword]
        if meaning == "setattr":
            yield from given[2:]
        if (key, called) in self.graph.followed:
            yield from self._given_as_any(node, self.graph.target(called, key))
            return
        made = self.graph.is_class(called, key) and syntax.dotted(called)
        if not made or self.graph.classes.methods(made, "__init__"):
            yield called
        sends = isinstance(node.func, cst.Attribute) and _SENDING.fullmatch(node.func.attr.value)
        places = (0,) if sends or _CALLING.fullmatch(meaning) else _PLACES.get(meaning, ())
        found = [given[place] for place in places if place < len(given)]
        if meaning or syntax.dotted(node.func).endswith(".sort"):
            found += [a.value for a in node.args if a.keyword and _CALLED.fullmatch(a.keyword.value)]
        for argument in (self.graph.unwrapped(argument, key) for argument in found):
            if not isinstance(argument, cst.Lambda) and (key, argument) not in self.graph.followed:
                yield argument

    def _given_as_any(self, node: cst.Call, target: str) -> Iterator[cst.BaseExpression]:
        """What a parameter gets that is called, and whose type does not say what it is."""
        function = self.graph.functions[target]
        names = [parameter.name.value for parameter in function.positional]
        stated = {p.name.value: function.source.code(p.annotation.annotation) for p in function.filled if p.annotation}
        called = {syntax.called(inner) for inner in syntax.below(function.node, cst.Call)}
        for number, argument in enumerate(node.args):
            name = argument.keyword.value if argument.keyword else "".join(names[number : number + 1])
            opaque = _ANY.search(stated.get(name, ""))
            if opaque and (name in called or "Callable" in stated[name]) and not isinstance(argument.value, cst.Lambda):
                yield argument.value


@remembered
def _attribute_gifts(module: cst.Module) -> tuple[tuple[str, cst.BaseExpression], ...]:
    """Each attribute that gets a value, itself or something in it, and the expression that it comes from."""
    found = []
    for node in syntax.below(module, *READ):
        for target, value in gifts(node):
            while isinstance(target, (cst.Subscript, cst.StarredElement)):
                target = target.value
            if isinstance(target, cst.Attribute):
                found.append((target.attr.value, value))
    return tuple(found)
