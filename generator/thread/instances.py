"""Where instances of classes may be: what a call could call though no type says so.

Without regard to order or paths: what a name, an attribute or a result is given anywhere, it may be everywhere. A list
may be what it holds, and a call of a function that is not known may give back whatever it gets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import libcst as cst

from generator.code import syntax
from generator.language.grammar import own_nodes
from generator.thread.calls import CallGraph
from generator.thread.variables import Variable
from generator.thread.wrappers import WRAPPERS

# A variable, the attributes of one name, what a function gives, what a call that is not known gets and gives, a lambda.
Place = Variable | tuple[str, str] | cst.CSTNode | tuple[cst.CSTNode, str]
# A class, for its instances too, or a function; and the function whose parameter was called to get it: what that gives
# comes out of the function at the calls that gave the parameter, and at no others.
Thing = tuple[str | cst.CSTNode, cst.CSTNode | None]
ANY, SET = ("any", ""), ("set", "")  # an attribute whose name is computed, where it is read and where it is set
METHOD: Place = ("method", "")  # a method whose name is computed, which stands for itself

# Functions of libraries that give back a function which calls what they are given first.
_WRAPPING = WRAPPERS | {
    *("functools.partial", "jax.shard_map", "jax.vmap", "jax.pmap", "jax.jacfwd", "jax.jacrev", "jax.hessian"),
    *("flax.nnx.vmap", "flax.nnx.pmap", "flax.nnx.scan"),
}
# Those that call at once what they are given first; and those that call what they are given at other places.
_CALLING = frozenset(
    {
        *("map", "filter", "functools.reduce", "jax.tree.map", "jax.tree_util.tree_map", "jax.eval_shape", "jax.vjp"),
        *("jax.jvp", "jax.linearize", *(f"jax.lax.{name}" for name in ("scan", "map", "associative_scan"))),
    }
)
_PLACES = {"jax.lax.cond": (1, 2), "jax.lax.switch": (1,), "jax.lax.fori_loop": (2,), "jax.lax.while_loop": (0, 1)}
_SENDING = ("submit", "map", "starmap", "apply", "apply_async", "imap")  # methods of pools
_TOOLS = re.compile(r"(functools|itertools)\.")
_CALLED = re.compile(r"key|f|fun|func|function|fn|\w+_(fun|fn|func)|default_factory|target|callback|initializer|hook")
_KEEPING = re.compile(r"append|add|extend|insert|update|set|put|push|register|__set")  # methods that keep what they get
_INERT = frozenset(  # they call nothing that they are given
    {
        *(
            "isinstance",
            "issubclass",
            "len",
            "str",
            "repr",
            "print",
            "int",
            "float",
            "bool",
            "id",
            "hash",
            "abs",
        ),
        *("hasattr", "range", "sum", "any", "all", "ValueError", "TypeError", "callable", "vars", "dir", "setattr"),
    }
)
_OPAQUE = re.compile(r"\b(Any|Callable|object|Module)\b|^(list|tuple|dict|set)$")  # annotations that may be anything


class Instances:
    """What every place in a package may hold."""

    def __init__(self, graph: CallGraph):
        self.graph = graph
        self._known = {(graph.functions[call.caller].key, call.node): call for call in graph.calls}
        self._held: dict[Place, set[Thing]] = {METHOD: {("*", None)}}
        self._goes: dict[Place, set[tuple[Place, cst.CSTNode | None]]] = {}
        self._reads: dict[Place, list[tuple[str, Place]]] = {}  # the attributes that are read of what a place holds
        # what is called: with what, where what it gives goes, and the function whose parameter it is
        self._calls: dict[Place, list[tuple[set[Place], Place, cst.CSTNode | None]]] = {}
        self._scopes = {node: scope for text in graph.names.texts.values() for node, scope in text.scopes.inner.items()}
        statements = [node for source in graph.sources.values() for node in source.module.body]
        self._classes = {node: node.name.value for node in statements if isinstance(node, cst.ClassDef)}
        self._stated: set[Place] = set()  # places whose annotation says what they hold
        for (_, attribute), annotation in graph.classes.stated.items():
            if annotation:
                self._state(("attribute", attribute), annotation)
        nodes = [(node, key) for key, source in graph.sources.items() for node in syntax.walk(source.module)]
        self._takers = {  # functions and their parameters that they call
            (graph.names.taker(node.func, key), node.func.value)
            for node, key in nodes
            if isinstance(node, cst.Call) and isinstance(node.func, cst.Name)
        }
        for read in (self._read_annotation, self._read):
            for node, key in nodes:
                read(node, key)

    def calls(self) -> Iterator[tuple[str, cst.BaseExpression, set[str]]]:
        """What is called though it isn't known: the definition, the expression and the classes it may be of."""
        for key, source in self.graph.sources.items():
            for node in syntax.walk(source.module):
                if isinstance(node, cst.Decorator):
                    yield key, node.decorator, self.classes(node.decorator, key)
                if (
                    isinstance(node, cst.Call)
                    and (key, node) not in self._known
                    and not self.graph.is_class(node.func, key)
                ):
                    for expression in (node.func, *self._called(node, key)):
                        yield key, expression, self.classes(expression, key)

    def classes(self, expression: cst.BaseExpression, key: str) -> set[str]:
        """The classes that the value of an expression may be of."""
        held = {thing for place in self._places(expression, key) for thing, _ in self._held.get(place, ())}
        return {thing for thing in held if isinstance(thing, str)}

    def _called(self, call: cst.Call, key: str) -> Iterator[cst.BaseExpression]:
        """The arguments that a call of something outside the package may call."""
        meaning = self.graph.names.meaning(call.func, key)
        calling = meaning in _CALLING | _WRAPPING or (
            isinstance(call.func, cst.Attribute) and call.func.attr.value in _SENDING
        )
        places = range(9) if _TOOLS.match(meaning) else (0,) if calling else _PLACES.get(meaning, ())
        given = [argument.value for argument in call.args if not argument.keyword and not argument.star]
        yield from (given[place] for place in places if place < len(given))
        yield from (a.value for a in call.args if a.keyword and _CALLED.fullmatch(a.keyword.value))

    def _read_annotation(self, node: cst.CSTNode, key: str) -> None:
        source = self.graph.sources[key]
        if isinstance(node, cst.Param) and node.annotation:
            self._state(self.graph.names.variable(node.name, key), source.code(node.annotation.annotation))
        elif isinstance(node, cst.FunctionDef) and node.returns:
            self._state(node, source.code(node.returns.annotation))
        elif isinstance(node, cst.AnnAssign):
            for place in self._targets(node.target, key):
                self._state(place, source.code(node.annotation.annotation))

    def _read(self, node: cst.CSTNode, key: str) -> None:
        """What flows where by one node."""
        variable = self.graph.names.variable
        if isinstance(node, cst.Param) and node.default:
            self._give(variable(node.name, key), self._places(node.default, key))
        elif isinstance(node, cst.FunctionDef):
            scope = variable(node.name, key)[0]
            if scope and scope.node in self._classes:  # its `self`, or its `cls`
                for parameter in node.params.params[:1]:
                    self._hold(variable(parameter.name, key), self._classes[scope.node])
            else:
                for place in self._targets(node.name, key):
                    self._hold(place, node)
            for below in own_nodes(node):
                if isinstance(below, (cst.Return, cst.Yield)) and below.value:
                    self._give(node, self._places(below.value, key))
        elif isinstance(node, cst.Attribute) and not self.graph.names.meaning(node, key):
            for place in self._places(node.value, key):
                self._reads.setdefault(place, []).append((node.attr.value, (node, "itself")))
                for thing, _ in list(self._held.get(place, ())):
                    self._read_of(thing, node.attr.value, (node, "itself"))
        elif isinstance(node, cst.Lambda):
            self._give(node, self._places(node.body, key))
        elif node in self._classes:
            self._hold((None, self._classes[node]), self._classes[node])
        elif isinstance(node, cst.Assign):
            for target in node.targets:
                self._bind(target.target, node.value, key)
        elif isinstance(node, (cst.AnnAssign, cst.AugAssign, cst.NamedExpr)) and node.value:
            self._bind(node.target, node.value, key)
        elif isinstance(node, (cst.For, cst.CompFor)):
            self._bind(node.target, node.iter, key)
        elif isinstance(node, cst.WithItem) and node.asname:
            self._bind(node.asname.name, node.item, key)
        elif isinstance(node, cst.Match):
            for name in (n for case in node.cases for n in syntax.walk(case.pattern) if isinstance(n, cst.Name)):
                if name in self.graph.names.texts[key].binding:
                    self._give(variable(name, key), self._places(node.subject, key))
        elif isinstance(node, cst.Call):
            self._read_call(node, key)

    def _read_call(self, node: cst.Call, key: str) -> None:
        given = [(a.keyword.value if a.keyword else "", self._places(a.value, key)) for a in node.args]
        every = {place for _, places in given for place in places}
        call = self._known.get((key, node))
        if call:
            callee = self.graph.functions[call.callee]
            if call.wrappers:
                self._give(node, every)
            if call.scan or call.starred:
                self._give_all(callee.node, every)
            names = [parameter.name.value for parameter in callee.positional]
            for number, (keyword, places) in enumerate(given):
                name = keyword or (names[number] if number < len(names) else "")
                if name in callee.parameter_names:
                    self._give(self.graph.names.local(callee, name), places)
                if (callee.node, name) in self._takers:
                    self._give((node, "itself"), places)
                    self._call((node, "itself"), set(), node)
            return
        if self.graph.is_class(node.func, key):  # a dataclass, or a tuple with names
            lineage = self.graph.classes.lineage(cst.ensure_type(node.func, cst.Name).value)
            for kind, attribute in self.graph.classes.stated:
                self._give(("attribute", attribute), every if kind in lineage else ())
            return
        library = self.graph.names.meaning(node.func, key)
        if isinstance(node.func, cst.Attribute) and not library:  # `blocks.append(block)`, `blocks.pop()`
            for place in self._targets(node.func.value, key) if _KEEPING.match(node.func.attr.value) else ():
                self._give(place, every)
            self._give(node, self._places(node.func.value, key))
        if library == "setattr":
            self._give(SET, every)
        if library in _WRAPPING:
            self._give(node, given[0][1] if given else ())
        elif library != "getattr" and library not in _INERT:
            self._give(node, every)
            self._give((node, "itself"), every)
            self._call((node, "itself"), every, node)
            if not library:
                for place in self._places(node.func, key):
                    self._call(place, every, node, self.graph.names.taker(node.func, key))
                if not isinstance(node.func, (cst.Name, cst.Attribute)):
                    self._give(node, self._places(node.func, key))

    def _call(self, site: Place, given: set[Place], result: Place, host: cst.CSTNode | None = None) -> None:
        """A function that comes to a call may be called there, with the rest."""
        self._calls.setdefault(site, []).append((given, result, host))
        for thing, _ in list(self._held.get(site, ())):
            self._called_at(site, thing)

    def _called_at(self, site: Place, thing: str | cst.CSTNode) -> None:
        for given, result, host in self._calls.get(site, ()) if not isinstance(thing, str) else ():
            self._give(result, [thing], host)
            self._give_all(thing, given)

    def _read_of(self, thing: Thing, attribute: str, place: Place) -> None:
        """A method of an instance; what a property gives."""
        for name in self.graph.methods(thing, attribute) if isinstance(thing, str) and thing != "*" else ():
            method = self.graph.functions[name].node
            self._hold(place, method)
            self._give(place, [method] if method.decorators else ())

    def _give_all(self, function: cst.CSTNode, given: Iterable[Place]) -> None:
        """Gives all to all parameters of a function."""
        if isinstance(function, (cst.FunctionDef, cst.Lambda)):
            for parameter in syntax.walk(function.params):
                if isinstance(parameter, cst.Param):
                    self._give((self._scopes[function], parameter.name.value), given)

    def _state(self, place: Place, annotation: str) -> None:
        """A place holds what its annotation names; where that may be anything, what it is given too."""
        for name in self.graph.classes.mentioned(annotation):
            self._hold(place, name)
        if not _OPAQUE.search(annotation):
            self._stated.add(place)

    def _give(self, place: Place, places: Iterable[Place], parameter_of: cst.CSTNode | None = None) -> None:
        for source in places if place not in self._stated else ():
            if (place, parameter_of) not in self._goes.setdefault(source, set()):
                self._goes[source].add((place, parameter_of))
                for thing, tag in list(self._held.get(source, ())):
                    self._hold(place, thing, parameter_of or tag)

    def _hold(self, place: Place, thing: str | cst.CSTNode, tag: cst.CSTNode | None = None) -> None:
        """Puts a thing into a place and wherever that goes."""
        queue = [(place, tag)]
        while queue:
            place, tag = queue.pop()
            held = self._held.setdefault(place, set())
            if (thing, tag) in held or (thing, None) in held or tag is place:
                continue
            held.add((thing, tag))
            self._called_at(place, thing)
            for attribute, there in self._reads.get(place, ()):
                self._read_of(thing, attribute, there)
            queue += [(other, new or tag) for other, new in self._goes.get(place, ())]
            if isinstance(place, tuple) and place[0] == "attribute" and isinstance(thing, str):
                queue.append((ANY, tag))

    def _bind(self, target: cst.BaseExpression, value: cst.BaseExpression, key: str) -> None:
        kinds = self._elements(value, key)
        if isinstance(target, cst.Tuple) and len(target.elements) == len(kinds):
            for element, kind in zip(target.elements, kinds, strict=True):
                for place in self._targets(element.value, key):
                    for name in self.graph.classes.mentioned(kind):
                        self._hold(place, name)
                    self._give(place, self._places(value, key) if _OPAQUE.search(kind) else ())
            return
        for place in self._targets(target, key):
            self._give(place, self._places(value, key))

    def _elements(self, value: cst.BaseExpression, key: str) -> list[str]:
        """What the annotation of a function says of each element of the tuple that it gives."""
        if isinstance(value, cst.Name) and value in self.graph.names.texts[key].standing:
            value = self.graph.names.value(value, key) or value
        call = self._known.get((key, value)) if isinstance(value, cst.Call) else None
        if not call or call.wrappers:
            return []
        found = re.fullmatch(r"tuple\[([^\[\].]+)\](?: \| None)?", self.graph.functions[call.callee].result)
        return found[1].split(",") if found else []

    def _targets(self, target: cst.CSTNode, key: str) -> Iterator[Place]:
        if isinstance(target, cst.Name):
            if target in self.graph.names.texts[key].standing:
                variable = self.graph.names.variable(target, key)
                yield variable
                if variable[0] and isinstance(variable[0].node, cst.ClassDef):
                    yield "attribute", target.value
        elif isinstance(target, cst.Attribute):
            yield "attribute", target.attr.value
        elif isinstance(target, (cst.Subscript, cst.StarredElement)):
            yield from self._targets(target.value, key)
        elif isinstance(target, (cst.Tuple, cst.List)):
            for element in target.elements:
                yield from self._targets(element.value, key)

    def _places(self, node: cst.CSTNode, key: str) -> set[Place]:
        """The places whose values an expression may give."""
        if isinstance(node, cst.Name):
            place = set(self._targets(node, key))
            if kind := self.graph.class_of(node, key):
                self._hold(("class", kind), kind)
                place.add(("class", kind))
            return place
        if isinstance(node, cst.Attribute):
            if node.attr.value == "__class__":
                return self._places(node.value, key)
            return (
                set()
                if self.graph.names.meaning(node, key)
                else {("attribute", node.attr.value), SET, (node, "itself")}
            )
        if isinstance(node, cst.Call):
            call = self._known.get((key, node))
            if self.graph.is_class(node.func, key):
                return self._places(node.func, key)
            if call:
                return {self.graph.functions[call.callee].node, node}
            if syntax.called(node) == "getattr" and len(node.args) > 1:
                return self._computed(node, key)
            return {node}
        if isinstance(node, cst.Lambda):
            self._hold((node, "itself"), node)
            return {(node, "itself")}
        return {place for child in syntax.children(node) for place in self._places(child, key)}

    def _computed(self, call: cst.Call, key: str) -> set[Place]:
        """What `getattr(x, name)` may give: any attribute, unless `x` is annotated to be of no class of the package."""
        owner, name = call.args[0].value, call.args[1].value
        if isinstance(name, cst.SimpleString):
            return {("attribute", str(name.evaluated_value))}
        return set() if self.is_foreign(owner, key) else {ANY, SET, METHOD}

    def is_foreign(self, node: cst.CSTNode, key: str) -> bool:
        """Whether a name is annotated to be of no class of the package."""
        names = self.graph.names
        if not isinstance(node, cst.Name) or node not in names.texts[key].standing:
            return False
        stated = names.annotations(names.variable(node, key), key)
        return bool(stated) and not any(_OPAQUE.search(a) or self.graph.classes.mentioned(a) for a in stated)
