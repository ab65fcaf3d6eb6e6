"""Where instances of classes may be: what a call could call though no type says so.

Without regard to order or paths: what a name, an attribute or a result is given anywhere, it may be everywhere. A list
may be what it holds, and a call of a function that is not known may give back, and may call, whatever it gets.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator
from functools import cached_property, reduce
from operator import or_

import libcst as cst

from generator.code import syntax
from generator.language.grammar import own_nodes
from generator.thread.calls import CallGraph
from generator.thread.functions import ASSIGNING, targets_of
from generator.thread.things import Thing, Things
from generator.thread.wrappers import WRAPPERS

# A variable; ("attribute", name); a function or a lambda, for what it gives; a call that is not known, for what that
# gives; (node, "itself") for a lambda, for an attribute that is a method, and for all that a call gets.
Place = Hashable
# An attribute whose name is computed, where it is read and where it is set; a method whose name is computed.
ANY, SET, METHOD = ("any", ""), ("set", ""), ("method", "")

# Functions of libraries that give back a function which calls what they are given first.
_WRAPPING = WRAPPERS | {
    *("functools.partial", "jax.shard_map", "jax.vmap", "jax.pmap", "jax.jacfwd", "jax.jacrev", "jax.hessian"),
    *("flax.nnx.vmap", "flax.nnx.pmap", "flax.nnx.scan"),
}
# Those that call at once what they are given first; what methods of pools do; and those with it at other places.
_CALLING = re.compile(
    r"(map|filter|jax\.tree\.map|jax\.tree_util\.tree_map|jax\.(eval_shape|vjp|jvp|linearize))"
    r"|jax\.lax\.(scan|map|associative_scan)|(functools|itertools|operator)\.\w+"
)
_SENDING = ("submit", "map", "starmap", "apply", "apply_async", "imap")
_PLACES = {"jax.lax.cond": (1, 2), "jax.lax.switch": (1,), "jax.lax.fori_loop": (2,), "jax.lax.while_loop": (0, 1)}
_CALLED = re.compile(r"key|f|fun|func|function|fn|\w+_(fun|fn|func)|default_factory|target|callback|initializer|hook")
_KEEPING = re.compile(r"append|add|extend|insert|update|set|put|push|register|__set")  # methods that keep what they get
_READ = (  # the nodes by which something flows
    *(cst.Param, cst.FunctionDef, cst.Lambda, cst.ClassDef, cst.Attribute, cst.Match, cst.Call, cst.Decorator),
    *ASSIGNING,
)
_OPAQUE = re.compile(r"\b(Any|Callable|object|Module)\b|^(list|tuple|dict|set)$")  # annotations that may be anything


class Instances:
    """What every place in a package may hold.

    A thing in a place has a mark: the function whose parameter was called to get it. What such a call gives comes out
    of the function at the calls that gave it the parameter, and at no others.
    """

    def __init__(self, graph: CallGraph):
        self.graph, self.names = graph, graph.names
        self._known = {(graph.functions[call.caller].key, call.node): call for call in graph.calls}
        self._things = Things()
        self._held: dict[Place, dict[Place, int]] = {}  # the set of things in a place, by their marks
        self._waiting: dict[tuple[Place, Place], int] = {}  # those that have yet to go on from there
        self._goes: dict[Place, set[tuple[Place, Place]]] = {}  # to which places, and with what mark
        self._reads: dict[Place, list[tuple[str, Place]]] = {}  # the attributes that are read of what a place holds
        self._calls: dict[Place, list[tuple[set[Place], Place, Place]]] = {}  # what it gets, where it gives, the mark
        self._stated: set[Place] = set()  # places whose annotation says what they hold
        self._scopes = {node: scope for text in self.names.texts.values() for node, scope in text.scopes.inner.items()}
        statements = [node for source in graph.sources.values() for node in source.module.body]
        self._classes = {node: node.name.value for node in statements if isinstance(node, cst.ClassDef)}
        self._nodes = [
            (node, key) for key, source in graph.sources.items() for node in syntax.below(source.module, *_READ)
        ]
        calls = [(node, key) for node, key in self._nodes if isinstance(node, cst.Call)]
        self._takers = {(self.names.taker(node.func, key), syntax.dotted(node.func)) for node, key in calls}
        self._hold(METHOD, self._things.bit("*"))
        for (_, attribute), annotation in graph.classes.stated.items():
            self._state(("attribute", attribute), annotation)
        for read in (self._read_annotation, self._read):
            for node, key in self._nodes:
                read(node, key)
        self._settle()

    @cached_property
    def calls(self) -> list[tuple[str, cst.BaseExpression, set[str]]]:
        """What is called though it isn't known: the definition, the expression and the classes it may be of."""
        found: list[tuple[str, cst.BaseExpression]] = []
        for node, key in self._nodes:
            if isinstance(node, cst.Decorator):
                found.append((key, node.decorator))
            elif isinstance(node, cst.Call) and (key, node) not in self._known:
                if not self.graph.is_class(node.func, key):
                    found += ((key, called) for called in (node.func, *self._called(node, key)))
        return [(key, called, kinds) for key, called in found if (kinds := self.classes(called, key))]

    def classes(self, expression: cst.BaseExpression, key: str) -> set[str]:
        """The classes that the value of an expression may be of; `*` for a method of any."""
        sets = (things for place in self._places(expression, key) for things in self._held.get(place, {}).values())
        return {thing for thing in self._things.of(reduce(or_, sets, 0)) if isinstance(thing, str)}

    def is_foreign(self, node: cst.CSTNode, key: str) -> bool:
        """Whether a name is annotated to be of no class of the package."""
        if not isinstance(node, cst.Name) or node not in self.names.texts[key].standing:
            return False
        stated = self.names.annotations(self.names.variable(node, key), key)
        return bool(stated) and not any(_OPAQUE.search(a) or self.graph.classes.mentioned(a) for a in stated)

    def _called(self, call: cst.Call, key: str) -> Iterator[cst.BaseExpression]:
        """The arguments that a call of something outside the package may call."""
        meaning = self.names.meaning(call.func, key)
        sends = isinstance(call.func, cst.Attribute) and call.func.attr.value in _SENDING
        calling = sends or meaning in _WRAPPING or _CALLING.fullmatch(meaning)
        given = [argument.value for argument in call.args if not argument.keyword and not argument.star]
        yield from (given[place] for place in ((0,) if calling else _PLACES.get(meaning, ())) if place < len(given))
        yield from (a.value for a in call.args if a.keyword and _CALLED.fullmatch(a.keyword.value))

    def _read_annotation(self, node: cst.CSTNode, key: str) -> None:
        code = self.graph.sources[key].code
        if type(node) is cst.Param and node.annotation:
            self._state(self.names.variable(node.name, key), code(node.annotation.annotation))
        elif type(node) is cst.FunctionDef and node.returns:
            self._state(node, code(node.returns.annotation))
        elif type(node) is cst.AnnAssign:
            for place in self._targets(node.target, key):
                self._state(place, code(node.annotation.annotation))

    def _read(self, node: cst.CSTNode, key: str) -> None:
        """What flows where by one node."""
        variable = self.names.variable
        # isinstance takes long for libcst's nodes
        if type(node) is cst.Param and node.default:
            self._give(variable(node.name, key), self._places(node.default, key))
        elif type(node) is cst.FunctionDef:
            self._read_function(node, key)
        elif type(node) is cst.Lambda:
            self._give(node, self._places(node.body, key))
        elif type(node) is cst.ClassDef and node in self._classes:
            self._hold((None, node.name.value), self._things.bit(node.name.value))
        elif type(node) is cst.Attribute and not self.names.meaning(node, key):
            for place in self._places(node.value, key):
                self._reads.setdefault(place, []).append((node.attr.value, (node, "itself")))
        elif type(node) is cst.Match:
            for name in (n for case in node.cases for n in syntax.walk(case.pattern) if isinstance(n, cst.Name)):
                if name in self.names.texts[key].binding:
                    self._give(variable(name, key), self._places(node.subject, key))
        elif type(node) is cst.Call:
            self._read_call(node, key)
        for target in targets_of(node):
            for value in (getattr(node, field, None) for field in ("value", "iter", "item")):
                if value:
                    for place in self._targets(target, key):
                        self._give(place, self._places(value, key))

    def _read_function(self, node: cst.FunctionDef, key: str) -> None:
        scope = self.names.variable(node.name, key)[0]
        if scope and isinstance(scope.node, cst.ClassDef) and scope.node in self._classes:  # its `self`, or its `cls`
            for parameter in node.params.params[:1]:
                self._hold(self.names.variable(parameter.name, key), self._things.bit(self._classes[scope.node]))
        else:
            for place in self._targets(node.name, key):
                self._hold(place, self._things.bit(node))
        for below in own_nodes(node):
            if type(below) in (cst.Return, cst.Yield) and (value := getattr(below, "value", None)):
                self._give(node, self._places(value, key))

    def _read_call(self, node: cst.Call, key: str) -> None:
        given = [(a.keyword.value if a.keyword else "", self._places(a.value, key)) for a in node.args]
        every = {place for _, places in given for place in places}
        call, library, all_of_it = self._known.get((key, node)), self.names.meaning(node.func, key), (node, "itself")
        if call:
            callee = self.graph.functions[call.callee]
            self._give(node, every if call.wrappers else ())
            self._give_all(callee.node, every if call.scan or call.starred else ())
            names = [parameter.name.value for parameter in callee.positional]
            for number, (keyword, places) in enumerate(given):
                name = keyword or (names[number] if number < len(names) else "")
                if name in callee.parameter_names:
                    self._give(self.names.local(callee, name), places)
                if (callee.node, name) in self._takers:
                    self._give(all_of_it, places)
                    self._call(all_of_it, set(), node, None)
        elif self.graph.is_class(node.func, key):  # a dataclass, or a tuple with names
            lineage = self.graph.classes.lineage(syntax.dotted(node.func))
            for kind, attribute in self.graph.classes.stated:
                self._give(("attribute", attribute), every if kind in lineage else ())
        elif library in _WRAPPING:
            self._give(node, given[0][1] if given else ())
        elif library != "getattr":
            self._give(SET, every if library == "setattr" else ())
            self._give(node, every)
            self._give(all_of_it, every)
            self._call(all_of_it, every, node, None)
            for place in self._places(node.func, key) if not library else ():
                self._call(place, every, node, self.names.taker(node.func, key))
            if isinstance(node.func, cst.Attribute) and not library:  # `blocks.append(block)`, `blocks.pop()`
                self._give(node, self._places(node.func.value, key))
                for place in self._targets(node.func.value, key) if _KEEPING.match(node.func.attr.value) else ():
                    self._give(place, every)
            elif not isinstance(node.func, cst.Name):
                self._give(node, self._places(node.func, key))

    def _call(self, site: Place, given: set[Place], result: Place, mark: Place) -> None:
        """A function that comes to a place may be called there, with what is given."""
        self._calls.setdefault(site, []).append((given, result, mark))

    def _called_at(self, site: Place, thing: Thing) -> None:
        for given, result, mark in self._calls.get(site, ()) if not isinstance(thing, str) else ():
            self._give(result, [thing], mark)
            self._give_all(thing, given)

    def _read_of(self, thing: Thing, attribute: str, place: Place) -> None:
        """A method of an instance; what a property gives."""
        for name in self.graph.methods(thing, attribute) if isinstance(thing, str) and thing != "*" else ():
            method = self.graph.functions[name].node
            self._hold(place, self._things.bit(method))
            self._give(place, [method] if method.decorators else ())

    def _give_all(self, function: Thing, given: Iterable[Place]) -> None:
        """Gives all to all parameters of a function."""
        if isinstance(function, (cst.FunctionDef, cst.Lambda)):
            for parameter in syntax.walk(function.params):
                if isinstance(parameter, cst.Param):
                    self._give((self._scopes[function], parameter.name.value), given)

    def _state(self, place: Place, annotation: str) -> None:
        """A place holds what its annotation names; where that may be anything, what it is given too."""
        for name in self.graph.classes.mentioned(annotation):
            self._hold(place, self._things.bit(name))
        if annotation and not _OPAQUE.search(annotation):
            self._stated.add(place)

    def _give(self, place: Place, places: Iterable[Place], mark: Place = None) -> None:
        for source in places if place not in self._stated else ():
            if (place, mark) not in self._goes.setdefault(source, set()):
                self._goes[source].add((place, mark))
                for other, things in list(self._held.get(source, {}).items()):
                    self._hold(place, things, mark or other)

    def _hold(self, place: Place, things: int, mark: Place = None) -> None:
        """Puts things into a place, from which they have yet to go on."""
        held = self._held.setdefault(place, {})
        new = things & ~held.get(mark, 0) & ~held.get(None, 0)
        if new and mark is not place:
            held[mark] = held.get(mark, 0) | new
            self._waiting[place, mark] = self._waiting.get((place, mark), 0) | new

    def _settle(self) -> None:
        """Moves things to wherever their places go, until nothing moves."""
        while self._waiting:
            (place, mark), things = self._waiting.popitem()
            for other, new in self._goes.get(place, ()):
                self._hold(other, things, new or mark)
            if isinstance(place, tuple) and place[0] == "attribute":
                self._hold(ANY, things & self._things.classes, mark)
            for thing in self._things.of(things) if place in self._reads or place in self._calls else ():
                self._called_at(place, thing)
                for attribute, there in self._reads.get(place, ()):
                    self._read_of(thing, attribute, there)

    def _targets(self, target: cst.CSTNode, key: str) -> Iterator[Place]:
        if type(target) is cst.Name and target in self.names.texts[key].standing:
            scope, name = self.names.variable(target, key)
            yield scope, name
            if scope and isinstance(scope.node, cst.ClassDef):
                yield "attribute", name
        elif type(target) is cst.Attribute:
            yield "attribute", target.attr.value
        elif isinstance(target, (cst.Subscript, cst.StarredElement)):
            yield from self._targets(target.value, key)
        elif isinstance(target, (cst.Tuple, cst.List)):
            for element in target.elements:
                yield from self._targets(element.value, key)

    def _places(self, node: cst.CSTNode, key: str) -> set[Place]:
        """The places whose values an expression may give."""
        if type(node) is cst.Name:
            kind = self.graph.class_of(node, key)
            return {*self._targets(node, key), *([(None, kind)] if kind else [])}
        if type(node) is cst.Attribute:
            if node.attr.value == "__class__":
                return self._places(node.value, key)
            known = self.names.meaning(node, key)
            return set() if known else {("attribute", node.attr.value), SET, (node, "itself")}
        if type(node) is cst.Lambda:
            self._hold((node, "itself"), self._things.bit(node))
            return {(node, "itself")}
        if type(node) is not cst.Call:
            return {place for child in syntax.children(node) for place in self._places(child, key)}
        call = self._known.get((key, node))
        if self.graph.is_class(node.func, key):
            return self._places(node.func, key)
        if syntax.called(node) == "getattr" and len(node.args) > 1:
            owner, name = node.args[0].value, node.args[1].value
            if isinstance(name, cst.SimpleString):
                return {("attribute", name.evaluated_value)}
            return set() if self.is_foreign(owner, key) else {ANY, SET, METHOD}
        return {self.graph.functions[call.callee].node, node} if call else {node}
