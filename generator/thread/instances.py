"""Where instances of classes may be: what a call could call though no type says so.

Without regard to order or paths: what a name, an attribute or a result is given anywhere, it may be everywhere. A list
may be what it holds, and a call of a function that is not known may give back whatever it gets.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator

import libcst as cst

from generator.code import syntax
from generator.code.names import bound_names, own_bound, own_code
from generator.code.syntax import Source
from generator.thread.calls import CallGraph
from generator.thread.functions import Function
from generator.thread.wrappers import WRAPPERS

# ("name", function, name), ("attribute", "", name), ("result", function, ""), ("class", "", name), and what is had by
# calling what a place holds: ("called name", ...)
Place = tuple[str, str, str]
ANY: Place = ("any", "", "")  # an attribute whose name is computed

# Functions of libraries that give back a function which calls what they are given first.
_WRAPPING = WRAPPERS | {
    *("functools.partial", "jax.shard_map", "jax.vmap", "jax.pmap", "jax.jacfwd", "jax.jacrev", "jax.hessian"),
    *("flax.nnx.vmap", "flax.nnx.pmap", "flax.nnx.scan"),
}
# Those that call it at once; and those that call what they are given at other places.
_CALLING = frozenset(
    {
        *("map", "filter", "functools.reduce", "jax.tree.map", "jax.tree_util.tree_map", "jax.eval_shape", "jax.vjp"),
        *("jax.jvp", "jax.linearize", *(f"jax.lax.{name}" for name in ("scan", "map", "associative_scan"))),
    }
)
_PLACES = {"jax.lax.cond": (1, 2), "jax.lax.switch": (1,), "jax.lax.fori_loop": (2,), "jax.lax.while_loop": (0, 1)}
_OPAQUE = re.compile(r"\b(Any|Callable|object|Module)\b|^(list|tuple|dict|set)$")  # annotations that may be anything


class Instances:
    """What every place in the functions of a call graph may hold."""

    def __init__(self, graph: CallGraph):
        self.graph = graph
        self._known = {id(call.node): call.callee for call in graph.calls}
        self._held: dict[Place, set[Place]] = {}
        self._stated: set[Place] = set()  # places whose annotation says what they hold
        for function in graph.functions.values():
            self._read_annotations(function)
        for function in graph.functions.values():
            self._read(function)
        for source in graph.sources.values():
            for statement in source.module.body:
                for member in syntax.body(statement) if isinstance(statement, cst.ClassDef) else [statement]:
                    self._read_value(syntax.simple(member), source)

    def calls(self, function: Function) -> Iterator[tuple[cst.Call, cst.BaseExpression, set[str]]]:
        """The calls in a function whose callee is not known, with what they call and the classes that it may be of."""
        for node in own_code(function.node):
            if isinstance(node, cst.Call) and id(node) not in self._known and not self._is_class(node.func):
                meaning = self.graph.wrappers.meaning(node.func, function)
                places = (0,) if meaning in _CALLING | _WRAPPING else _PLACES.get(meaning, ())
                given = [argument.value for argument in node.args if not argument.keyword and not argument.star]
                called = [given[place] for place in places if place < len(given)]
                for expression in (node.func, *called):
                    yield node, expression, self.classes(expression, function)

    def attributes(self, function: Function, names: Collection[str]) -> Iterator[cst.Attribute]:
        """The attributes of these names that a function reads."""
        for node in own_code(function.node):
            if isinstance(node, cst.Attribute) and node.attr.value in names:
                yield node

    def classes(self, expression: cst.BaseExpression, function: Function) -> set[str]:
        """The classes that the value of an expression may be of."""
        seen, queue = set[Place](), list(self._places(expression, function))
        while queue:
            place = queue.pop()
            if place not in seen:
                seen.add(place)
                queue += self._held.get(place, ())
        if ANY in seen:
            return set(self.graph.classes.names)
        return {name for word, _, name in seen if word == "class"}

    def _read_value(self, statement: cst.BaseSmallStatement | None, source: Source) -> None:
        """An assignment in a class or beside the functions."""
        if isinstance(statement, cst.AnnAssign):
            name, kinds = syntax.dotted(statement.target), self._mentioned(source.code(statement.annotation.annotation))
        elif isinstance(statement, cst.Assign):
            name, kinds = syntax.dotted(statement.targets[0].target), self._mentioned(source.code(statement.value))
        else:
            return
        self._give(("attribute", "", name), kinds)
        self._give(("name", "", name), kinds)

    def _read_annotations(self, function: Function) -> None:
        for parameter in function.parameters:
            if parameter.annotation:
                annotation = function.source.code(parameter.annotation.annotation)
                self._state(("name", function.id, parameter.name.value), annotation)
        if function.result:
            self._state(("result", function.id, ""), function.result)

    def _read(self, function: Function) -> None:
        for parameter in function.parameters:
            if parameter.default:
                self._give(("name", function.id, parameter.name.value), self._places(parameter.default, function))
        for node in own_code(function.node):
            if isinstance(node, cst.Assign):
                for target in node.targets:
                    self._bind(target.target, node.value, function)
            elif isinstance(node, cst.AnnAssign):
                for place in self._targets(node.target, function):
                    self._state(place, function.source.code(node.annotation.annotation))
                if node.value:
                    self._bind(node.target, node.value, function)
            elif isinstance(node, (cst.AugAssign, cst.NamedExpr)):
                self._bind(node.target, node.value, function)
            elif isinstance(node, (cst.For, cst.CompFor)):
                self._bind(node.target, node.iter, function)
            elif isinstance(node, cst.WithItem) and node.asname:
                self._bind(node.asname.name, node.item, function)
            elif isinstance(node, cst.Match):
                for name in {name for case in node.cases for name in bound_names(case.pattern)}:
                    self._give(self._name(name, function), self._places(node.subject, function))
            elif isinstance(node, (cst.Return, cst.Yield)) and node.value:
                self._give(("result", function.id, ""), self._places(node.value, function))
            elif isinstance(node, cst.Call):
                self._read_call(node, function)

    def _read_call(self, call: cst.Call, function: Function) -> None:
        given = [(a.keyword.value if a.keyword else "", self._places(a.value, function)) for a in call.args]
        every = {place for _, places in given for place in places}
        callee = self._known.get(id(call))
        if callee:
            starred = any(argument.star for argument in call.args)
            self._pass(self.graph.functions[callee], given, every, starred)
            return
        if isinstance(call.func, cst.Attribute) and not self._is_library(call.func, function):  # `blocks.append(block)`
            for place in self._targets(call.func.value, function):
                self._give(place, every)
        if syntax.called(call) == "setattr":
            self._give(ANY, every)
        for node in syntax.walk(call):  # a function among what it gets may be called with the rest
            if isinstance(node, cst.Lambda):
                for parameter in node.params.params:
                    self._give(("name", function.id, parameter.name.value), every)
            elif isinstance(node, cst.Name):
                for inner in self._functions(node.value, function):
                    for name in inner.parameter_names:
                        self._give(("name", inner.id, name), every)

    def _pass(self, callee: Function, given: list[tuple[str, set[Place]]], every: set[Place], starred: bool) -> None:
        """Hands arguments to parameters; to all of them where a scan or a star says less."""
        positional = [parameter.name.value for parameter in callee.positional]
        for number, (keyword, places) in enumerate(given):
            name = keyword or (positional[number] if number < len(positional) else "")
            self._give(("name", callee.id, name), places)
        if starred or any(call.callee == callee.id and call.scan for call in self.graph.calls):
            for name in callee.parameter_names:
                self._give(("name", callee.id, name), every)

    def _functions(self, name: str, function: Function) -> Iterator[Function]:
        for scope in self.graph.scopes(function):
            if f"{scope.id}.{name}" in self.graph.functions:
                yield self.graph.functions[f"{scope.id}.{name}"]
                return
        if name in self.graph.functions:
            yield self.graph.functions[name]

    def _state(self, place: Place, annotation: str) -> None:
        """A place holds what its annotation names; where that may be anything, what it is given too."""
        self._held.setdefault(place, set()).update(self._mentioned(annotation))
        if not _OPAQUE.search(annotation):
            self._stated.add(place)

    def _give(self, place: Place, places: Iterable[Place]) -> None:
        if place in self._stated:
            return
        self._held.setdefault(place, set()).update(places)

    def _bind(self, target: cst.BaseExpression, value: cst.BaseExpression, function: Function) -> None:
        lambdas = [node for node in syntax.walk(value) if isinstance(node, cst.Lambda)]
        for place in self._targets(target, function):
            self._give(place, self._places(value, function))
            for node in lambdas:
                self._give(_called(place), self._places(node.body, function))

    def _targets(self, target: cst.BaseExpression, function: Function) -> Iterator[Place]:
        if isinstance(target, cst.Name):
            yield self._name(target.value, function)
            for scope in self.graph.scopes(function)[1:]:  # it may be nonlocal
                if target.value in own_bound(scope.node):
                    yield "name", scope.id, target.value
        elif isinstance(target, cst.Attribute):
            yield "attribute", "", target.attr.value
        elif isinstance(target, (cst.Subscript, cst.StarredElement)):
            yield from self._targets(target.value, function)
        elif isinstance(target, (cst.Tuple, cst.List)):
            for element in target.elements:
                yield from self._targets(element.value, function)

    def _name(self, name: str, function: Function) -> Place:
        for scope in self.graph.scopes(function):
            if name in own_bound(scope.node):
                return "name", scope.id, name
        return "name", "" if name in self.graph.sources else function.id, name  # or of a lambda or a comprehension

    def _places(self, node: cst.CSTNode, function: Function) -> set[Place]:
        """The places whose values an expression may give."""
        if isinstance(node, cst.Name):
            owner = {("class", "", function.class_name)} if node.value == "self" and function.class_name else set()
            return {self._name(node.value, function), *owner}
        if isinstance(node, cst.Attribute):
            return {("attribute", "", node.attr.value)}
        if isinstance(node, cst.Call):
            if self._is_class(node.func):
                return {_class(syntax.dotted(node.func))}
            callee = self._known.get(id(node))
            if callee and not callee.endswith(".__init__"):
                return {("result", callee, "")}
            if syntax.called(node) == "getattr" and len(node.args) > 1:
                return self._computed(node, function)
            if self.graph.wrappers.meaning(node.func, function) in _WRAPPING:
                return self._places(node.args[0].value, function) if node.args else set()
            library = self._is_library(node.func, function)
            inside = [*([] if library else [node.func]), *(argument.value for argument in node.args)]
            held = {place for child in inside for place in self._places(child, function)}
            if not isinstance(node.func, cst.Call):  # a lambda that a name or an attribute is bound to
                held |= {_called(place) for place in self._targets(node.func, function)}
            if isinstance(node.func, cst.Attribute) and not library:  # `blocks.pop()`
                held |= self._places(node.func.value, function)
            return held.union(*self._called_by(node, function))
        if isinstance(node, cst.Lambda):
            return set()  # a function: what it gives is had by calling it
        return {place for child in syntax.children(node) for place in self._places(child, function)}

    def _called_by(self, call: cst.Call, function: Function) -> Iterator[set[Place]]:
        """What the functions give that a call is given: at once, or where `jax.vmap(f)(x)` calls them."""
        given = [*call.args, *(call.func.args if isinstance(call.func, cst.Call) else ())]
        for argument in given:
            for node in syntax.walk(argument.value):
                if isinstance(node, cst.Lambda):
                    yield self._places(node.body, function)
                elif isinstance(node, cst.Name):
                    yield {("result", inner.id, "") for inner in self._functions(node.value, function)}

    def _computed(self, call: cst.Call, function: Function) -> set[Place]:
        """What `getattr(x, name)` may give: any attribute, unless `x` is annotated to be of no class of the package."""
        owner, name = call.args[0].value, call.args[1].value
        if isinstance(name, cst.SimpleString):
            return {("attribute", "", str(ast.literal_eval(name.value)))}
        for scope in self.graph.scopes(function):
            for parameter in scope.parameters:
                if parameter.annotation and parameter.name.value == syntax.dotted(owner):
                    annotation = scope.source.code(parameter.annotation.annotation)
                    return {ANY} if self._mentioned(annotation) or _OPAQUE.search(annotation) else set()
        return {ANY}

    def _is_library(self, node: cst.BaseExpression, function: Function) -> bool:
        """Whether a dotted name is one of Python or of an import."""
        meaning = self.graph.wrappers.meaning(node, function)
        return bool(meaning) and syntax.dotted(node).split(".")[0] not in self.graph.sources

    def _is_class(self, node: cst.BaseExpression) -> bool:
        return syntax.dotted(node) in self.graph.classes.names

    def _mentioned(self, annotation: str) -> set[Place]:
        """The classes that an annotation names: `list[Block]`."""
        return {_class(name) for name in self.graph.classes.names if name in annotation}


def _class(name: str) -> Place:
    return "class", "", name


def _called(place: Place) -> Place:
    return f"called {place[0]}", *place[1:]
