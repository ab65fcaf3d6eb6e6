"""Refuses every mention of a function that changes, but those by which a call calls it that threading edits.

A function or a method is mentioned by its name: such a name is a call that is followed, a type, a base, or an error. An
instance of a class has no name: whatever is called and may be an instance must say its class (`instances.py`).
"""

from __future__ import annotations

from collections.abc import Set

import libcst as cst

from generator.code import syntax
from generator.code.memory import remembered
from generator.errors import LoomError
from generator.language.grammar import own_nodes
from generator.thread.functions import Function
from generator.thread.instances import Instances
from generator.thread.plan import Plan

_NAMED = ("static_argnames", "donate_argnames")  # what jax.jit may be told: parameters by their names
_TYPED = "or say the type of what has it: `layer: Block`."
_COMPUTED = ("getattr", "operator.attrgetter", "operator.methodcaller")
_CALL = "Call it by its name: `{0}(...)`, also in a lambda: `jax.jit(lambda x: {0}(x))`."


def check_mentions(plan: Plan) -> None:
    """Checks every mention of every function that takes or gives more than before."""
    changed = _changed(plan)
    for name in sorted(changed):
        _check_function(plan, plan.graph.functions[name], changed[name])
    _Mentions(plan, changed).check()
    for value in plan.values.values():  # a function that gives it to nobody may be called where it is received
        giving = plan.graph.reach({*value.emitters}, inward=False) - plan.returned.keys() - {*value.receivers}
        within = plan.graph.reach({*value.receivers}, inward=True)
        _Mentions(plan, dict.fromkeys(giving, value.name), within).check()


def _changed(plan: Plan) -> dict[str, str]:
    """The functions that calls must call in another way than before, each with a value that it takes or gives."""
    elsewhere = {  # it can do without, and there is somebody who has it
        function: [name for name in names if plan.values[name].providers.keys() - {function}]
        for function, names in plan.optional.items()
    }
    tables = (plan.required, plan.returned, plan.scanned, elsewhere)
    return dict(plan.asked) | {function: names[0] for table in tables for function, names in table.items() if names}


def _check_function(plan: Plan, function: Function, value: str) -> None:
    """A function that changes is defined once, is called by nothing but calls, and is what its name means."""
    if function.twice:
        message = f"{function.id} is defined twice, and only one could be threaded"
        raise LoomError(message, function.where, "Rename one.")
    if function.is_dunder and (function.id.split(".")[-1] != "__init__" or plan.returned.get(function.id)):
        message = f"{function.id} must take or give {value}, and Python calls it by itself"
        raise LoomError(message, function.where, "Do this in an ordinary method.")
    if plan.returned.get(function.id) and any(isinstance(node, cst.Yield) for node in own_nodes(function.node)):
        message = f"{function.id} must give {value}, and is a generator"
        raise LoomError(message, function.where, "Emit it in a function that returns.")
    for decorator in function.node.decorators:
        if not _is_plain(plan, decorator.decorator, function.key):
            word = syntax.dotted(decorator.decorator) or syntax.called(decorator.decorator)
            message = (
                f"{function.id} must take or give {value}, and is decorated with {word}, which threading cannot follow"
            )
            raise LoomError(
                message,
                function.source.where(decorator),
                "Decorate a function around it, or use jax.jit with static_argnames.",
            )


def _is_plain(plan: Plan, node: cst.BaseExpression, key: str) -> bool:
    """Whether a decorator gives a function back, to be called in the same way: jax.jit, or a partial of it."""
    meaning = plan.graph.names.meaning
    if isinstance(node, cst.Call) and node.args and meaning(node.func, key) == "functools.partial":
        named = all(argument.keyword and argument.keyword.value in _NAMED for argument in node.args[1:])
        return named and meaning(node.args[0].value, key) == "jax.jit"
    return meaning(node, key) in ("jax.jit", "staticmethod", "classmethod")


class _Mentions:
    """The mentions of functions that change, anywhere or in some functions."""

    def __init__(self, plan: Plan, changed: dict[str, str], within: Set[str] | None = None):
        self.graph, self.changed = plan.graph, changed
        self.within = None if within is None else [plan.graph.functions[name] for name in within]
        functions = [plan.graph.functions[name] for name in changed]
        self.words = {function.node.name.value for function in functions}
        self.methods = {function.node.name.value for function in functions if function.is_member}
        self.made = {  # class -> what changes, of what is called to make or to call an instance
            method: {k: found for k in self.graph.classes.bases for found in self._methods(k, method) & changed.keys()}
            for method in ("__init__", "__call__")
        }
        self.instances = Instances(self.graph, {k for found in self.made.values() for k in found}, bool(self.methods))

    def check(self) -> None:
        if not self.changed:
            return
        words = self.words | self.made["__init__"].keys()
        for key, source in self.graph.sources.items():
            if words & self.graph.names.texts[key].words:
                self._check_names(key, words)
            nodes = syntax.below(source.module, cst.Attribute, cst.Call, cst.ClassDef) if self.methods else ()
            for node in nodes:
                if isinstance(node, cst.Attribute):
                    self._check_method(node, node.value, node.attr.value, key)
                elif isinstance(node, cst.ClassDef):
                    self._check_class(node, key)
                elif self.graph.names.meaning(node.func, key) in _COMPUTED and len(node.args) > 1:
                    name = node.args[1].value
                    if isinstance(name, cst.SimpleString):
                        self._check_method(node, node.args[0].value, str(name.evaluated_value), key)
        for key, node, kind in self.instances.called():
            made = {**self.made["__init__"], **self.made["__call__"]}
            what = f"an instance of {kind if kind in made else 'any class'}"
            remedy = f"Call it as `self.attribute(...)`, {_TYPED}"
            self._refuse(
                made.get(kind, min(self.changed)), f"this may be {what} that is used in a way that", node, key, remedy
            )

    def _check_names(self, key: str, words: Set[str]) -> None:
        text, excused = self.graph.names.texts[key], _excused(self.graph.sources[key].module)
        for name in text.standing:
            if name.value not in words or (key, name) in self.graph.followed:
                continue
            if self.graph.is_class(name, key):
                found = self.made["__init__"].get(name.value, "")
                if not found or name in text.binding or name in excused:
                    continue
            else:
                functions = [f.id for f in self.graph.names.functions(name, key) if f.id in self.changed]
                if not functions or (name in text.binding and len(self.graph.names.binds(name, key)) == 1):
                    continue
                found = functions[0]
            self._refuse(found, "is used here in a way that", name, key, _CALL.format(name.value))

    def _check_method(self, node: cst.CSTNode, owner: cst.BaseExpression, method: str, key: str) -> None:
        """An attribute with the name of a method that changes is followed, or that of something else."""
        if method not in self.methods or (key, node) in self.graph.followed:
            return
        if self.graph.names.meaning(owner, key) or self.instances.is_foreign(owner, key):
            return  # jnp.take
        kind, classes = self.graph.class_of(owner, key), self.graph.classes
        if syntax.called(owner) == "super":
            bases = [base for name, (_, of) in classes.nodes.items() if of == key for base in classes.bases[name]]
            found = {f for base in bases for f in self._methods(base, method)}
        elif kind:
            found = {f for other in classes.family(kind) for f in self._methods(other, method)}
        else:
            found = {name for name in self.changed if name.endswith(f".{method}")}
        for name in sorted(found & self.changed.keys()):
            what = f"this may be an instance of {name.split('.')[0]} that is used in a way that"
            self._refuse(name, what, node, key, f"Call it as `self.attribute.{method}(...)`, {_TYPED}")

    def _methods(self, kind: str, method: str) -> set[str]:
        return self.graph.classes.methods(kind, method)

    def _check_class(self, node: cst.ClassDef, key: str) -> None:
        """A class that has what changes stands at the top, and is what its name means."""
        top = self.graph.classes.nodes.get(node.name.value, (None, ""))[0] is node
        marks = [d.decorator for d in node.decorators if not self.graph.names.meaning(_head(d.decorator), key)]
        named = [(base.value, _head(base.value)) for base in node.bases]
        kinds = [(mark, node.name.value) for mark in marks if top]
        for base, head in named:
            if self.graph.is_class(head, key):
                kinds += [] if top else [(base, syntax.dotted(head))]
            elif not self.graph.names.meaning(head, key):
                kinds += [(base, kind) for kind in self.graph.classes.bases]
        for place, kind in kinds:
            for name in sorted(
                {f for method in self.methods for f in self._methods(kind, method)} & self.changed.keys()
            ):
                remedy = "Let the class stand at the top of the fragment, without such a decorator."
                self._refuse(name, f"this makes another class of {kind}, which", place, key, remedy)

    def _refuse(self, function: str, what: str, node: cst.CSTNode, key: str, remedy: str) -> None:
        if self.within is None or any(f.key == key and node in syntax.walk(f.node) for f in self.within):
            message = f"{function} must take or give {self.changed[function]}, and {what} threading cannot follow"
            raise LoomError(message, self.graph.sources[key].where(node), remedy)


def _head(node: cst.BaseExpression) -> cst.BaseExpression:
    """`Block` of `Block[int]` and of `Block(...)`."""
    while isinstance(node, (cst.Call, cst.Subscript)):
        node = node.func if isinstance(node, cst.Call) else node.value
    return node


@remembered
def _excused(module: cst.Module) -> frozenset[cst.CSTNode]:
    """The names of classes where they make no instance: `x: Block`, `isinstance(x, Block)`, `except Block`."""
    found: list[cst.CSTNode] = []
    for node in syntax.below(module, cst.Annotation, cst.Call, cst.ExceptHandler, cst.MatchClass, cst.ClassDef):
        if isinstance(node, cst.Annotation) or syntax.called(node) in ("isinstance", "issubclass"):
            found += syntax.walk(node)
        elif isinstance(node, cst.ExceptHandler) and node.type:
            found += syntax.walk(node.type)
        elif isinstance(node, cst.MatchClass):
            found.append(node.cls)
        elif isinstance(node, cst.ClassDef):
            found += (base.value for base in node.bases)
    for node in syntax.below(module, cst.Attribute):
        found.append(node.value)
    return frozenset(found)
