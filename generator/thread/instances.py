"""Finds calls of what may be an instance of a class whose calls change, without a declared class.

    [self.block][0](x)      jax.vmap(self.block)(x)      list(map(self.block, xs))      def apply(f, x): return f(x)

This is a points-to analysis that ignores order: an expression may be what anything in it may be. An item may be what
its list is, a variable or an attribute what is assigned to it anywhere, and a result what the call is passed. A
parameter without a type may be anything. One of a type such as Callable is what calls pass, and these are checked.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Set

from generator.code.tree import called_name, children, dotted_name
from generator.thread.functions import arguments
from generator.thread.graph import CallGraph
from generator.thread.names import CAPTURES

_ANY = re.compile(r"\b(Any|Callable|object|Module)\b|^(list|tuple|dict|set)$")  # annotations that may be anything
_WRAPPERS = re.compile(  # functions of libraries that return a function which calls their first argument
    r"functools\.partial|jax\.experimental\.pallas\.pallas_call|(jax|flax\.nnx)\.(jit|[vp]map|scan|remat|checkpoint|shard_map|(value_and_)?grad|jac\w+|hessian)"
)
# Functions of libraries that call their first argument or others, and methods of pools that do.
_CALLERS = re.compile(
    r"(map|filter|jax\.tree\.map|jax\.tree_util\.tree_map|jax\.(eval_shape|vjp|jvp|linearize))"
    r"|jax\.lax\.(map|associative_scan|scan)|(functools|itertools|operator)\.\w+"
)
_POOL_METHODS = re.compile(r"submit|map|starmap|apply|apply_async|imap")
_POSITIONS = {"jax.lax.cond": (1, 2), "jax.lax.switch": (1,), "jax.lax.fori_loop": (2,), "jax.lax.while_loop": (0, 1)}
ANY_CLASS = "any class"
_CALLBACKS = re.compile(
    r"key|f|fun|func|function|fn|\w+_(fun|fn|func)|default_factory|target|callback|initializer|hook"
)
_Expression = tuple[ast.AST, str, bool]  # an expression, the key of its definition, and whether it is called
_Sources = Iterator[str | _Expression]  # classes, and expressions


class Instances:
    """Resolves the classes of which an expression may be an instance.

    Args:
        classes: the classes that matter.
        methods: whether methods matter too, of whatever class, where their names are computed.
    """

    def __init__(self, graph: CallGraph, classes: Set[str], methods: bool):
        self.graph, self.names, self.classes = graph, graph.names, classes
        self._is_needed = bool(classes) or methods
        self._annotations: dict[str, list[str]] = defaultdict(list)  # attribute -> its annotations in all classes
        self._values: dict[str, list[_Expression]] = defaultdict(list)  # attribute -> its values in all classes
        for (_, attribute), annotation in graph.classes.annotations.items():
            self._annotations[attribute].append(annotation)
        for key, text in self.names.texts.items() if self._is_needed else ():
            for target, value in text.stored:
                self._values[target.attr].append((value, key, False))
            for (scope, name), values in text.values.items():
                if scope and isinstance(scope.node, ast.ClassDef):
                    self._values[name] += [(value, key, False) for value in values]

    def find_calls(self, keys: Iterable[str]) -> Iterator[tuple[str, ast.AST, str]]:
        """Yields key, called expression and class of each call of what may be an instance and is not followed."""
        for key in keys if self._is_needed else ():
            for node in (node for node in self.names.texts[key].nodes if isinstance(node, ast.Call)):
                for expression in self._called_by(node, key):
                    if class_name := self._find_class((expression, key, True)):
                        yield key, expression, class_name

    def _find_class(self, expression: _Expression) -> str:
        """Returns a class of which an expression may be an instance or hold one, `any class`, or '' for none."""
        queue, seen = [expression], set[_Expression]()
        while queue:
            if (source := queue.pop()) not in seen:
                seen.add(source)
                for found in self._sources(*source):
                    if isinstance(found, str):
                        return found
                    queue.append(found)
        return ""

    def _sources(self, node: ast.AST, key: str, called: bool) -> _Sources:
        """Yields the classes that an expression declares, and the expressions from which its value may come.

        Args:
            called: whether it is called: then the result of a lambda does not matter.
        """
        match node:
            case ast.Compare() | ast.JoinedStr() | ast.Constant():
                pass
            case ast.Name() if self.graph.is_class(node, key):
                yield from {node.id} & self.classes
            case ast.Name():
                yield from self._sources_of_name(node, key, called)
            case ast.Attribute(value, "__class__"):
                yield value, key, False
            case ast.Attribute(owner, attribute):
                if not self.names.meaning(node, key):
                    yield from self._sources_of_attribute(owner, attribute, key)
            case ast.Call():
                yield from self._sources_of_result(node, key, called)
            case ast.Lambda(body=body):
                if not called:
                    yield body, key, False
            case ast.Subscript(value):
                yield value, key, called
            case _:
                yield from ((child, key, called) for child in children(node))

    def _sources_of_name(self, name: ast.Name, key: str, called: bool) -> _Sources:
        variable, definition = self.names.texts[key].variable(name), self.names.definition(name, key) or key
        annotations = self.names.annotations(variable, key)
        if annotations and not any(map(_ANY.search, annotations)):
            yield from self._classes_in(annotations)
            return
        bindings = self.names.bindings(variable, key)
        parameter = next((node for node in bindings if isinstance(node, (ast.arg, *CAPTURES))), None)
        host = self.names.host(variable, key)
        if parameter and host and parameter is host.receiver:
            yield from {host.class_name} & self.classes
            return
        if parameter and not annotations:
            yield from sorted(self.classes)
        for value in self.names.texts[definition].values.get(variable, ()):
            yield value, definition, called

    def _sources_of_attribute(self, owner: ast.expr, attribute: str, key: str) -> _Sources:
        annotations = self.graph.classes.annotations
        classes = self.graph.classes.lineage(self.graph.class_of(owner, key))
        annotation = next(filter(None, (annotations.get((class_name, attribute)) for class_name in classes)), "")
        if annotation and not _ANY.search(annotation):
            yield from self._classes_in([annotation])
        else:
            yield from self._classes_in(self._annotations[attribute])
            yield from self._values[attribute]

    def _sources_of_result(self, node: ast.Call, key: str, called: bool) -> _Sources:
        """Yields the sources of a call's result: as its function declares or returns it, else all that it is passed."""
        func, meaning = self.graph.unwrap_checkpoint(node.func, key), self.names.meaning(node.func, key)
        if meaning == "getattr" or self.graph.is_class(func, key):
            yield ANY_CLASS if meaning else (func, key, False)
            return
        if callee := self.graph.resolve_callee(func, key):
            function = self.graph.functions[callee]
            if function.return_type and not _ANY.search(function.return_type):
                yield from self._classes_in([function.return_type])
                return
            results = [part for part in function.own_nodes if isinstance(part, (ast.Return, ast.Yield, ast.YieldFrom))]
            yield from ((part.value, function.key, called) for part in results if part.value)
        elif not meaning:
            yield func.value if isinstance(func, ast.Attribute) else func, key, False
        is_wrapper = bool(called and _WRAPPERS.fullmatch(meaning))
        yield from ((argument, key, is_wrapper) for argument in arguments(node)[: 1 if is_wrapper else None])

    def is_foreign(self, node: ast.AST, key: str) -> bool:
        """Returns whether an expression belongs to a library, or is annotated with a type of one."""
        annotations = isinstance(node, ast.Name) and self.names.annotations(self.names.texts[key].variable(node), key)
        is_typed = annotations and not any(_ANY.search(a) or self.graph.classes.classes_in(a) for a in annotations)
        return bool(is_typed or self.names.meaning(node, key))

    def _classes_in(self, annotations: Iterable[str]) -> Iterator[str]:
        for annotation in annotations:
            yield from sorted(self.graph.classes.classes_in(annotation) & self.classes)

    def _called_by(self, node: ast.Call, key: str) -> Iterator[ast.expr]:
        """Yields what a call calls: the expression itself, and the arguments that a library calls."""
        func, meaning = self.graph.unwrap_checkpoint(node.func, key), self.names.meaning(node.func, key)
        positional = [value for value in arguments(node) if not any(value is k.value for k in node.keywords if k.arg)]
        named = [(keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg]
        if meaning == "setattr":
            yield from positional[2:]
        if (key, func) in self.graph.followed:  # for a parameter that is called and whose type may be anything
            function = self.graph.functions[self.graph.resolve_callee(func, key)]
            called = {called_name(inner) for inner in function.nodes}
            named += zip((parameter.arg for parameter in function.positional), positional, strict=False)
            for parameter in function.parameters:
                annotation = function.source.code(parameter.annotation) if parameter.annotation else ""
                if _ANY.search(annotation) and (parameter.arg in called or "Callable" in annotation):
                    yield from (v for name, v in named if name == parameter.arg and not isinstance(v, ast.Lambda))
            return
        if not self.graph.is_class(func, key) or self.graph.classes.methods(dotted_name(func), "__init__"):
            yield func
        is_pool = isinstance(node.func, ast.Attribute) and _POOL_METHODS.fullmatch(node.func.attr)
        positions = (0,) if is_pool or _CALLERS.fullmatch(meaning) else _POSITIONS.get(meaning, ())
        callbacks = [positional[position] for position in positions if position < len(positional)]
        if meaning or dotted_name(node.func).endswith(".sort"):
            callbacks += [value for name, value in named if _CALLBACKS.fullmatch(name)]
        for callback in (self.graph.unwrap_checkpoint(callback, key) for callback in callbacks):
            if not isinstance(callback, ast.Lambda) and (key, callback) not in self.graph.followed:
                yield callback
