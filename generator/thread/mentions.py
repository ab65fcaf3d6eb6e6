"""Refuses every mention of a function that changes, but those by which a call calls it that threading edits.

A function or a method is mentioned by its name: such a name is a call that is followed, a type, a base, or an error. An
instance of a class has no name: whatever is called and may be an instance must say its class (`instances.py`).
"""

from __future__ import annotations

from collections.abc import Set

import libcst as cst

from generator.code import syntax
from generator.errors import LoomError
from generator.language.grammar import own_nodes
from generator.thread.functions import Function
from generator.thread.instances import Instances
from generator.thread.plan import Plan

_NAMED = ("static_argnames", "donate_argnames")  # what jax.jit may be told: parameters by their names
_COMPUTED = ("getattr", "operator.attrgetter", "operator.methodcaller")
_CALL = "Call it by its name: `{0}(...)`, also in a lambda: `jax.jit(lambda x: {0}(x))`."


def check_mentions(plan: Plan) -> None:
    """Checks every mention of every function that takes or gives more than before."""
    changed = _changed(plan)
    for name in sorted(changed):
        _check_function(plan, plan.graph.functions[name], changed[name])
    if changed:
        _Mentions(plan, changed).check()
    returned = {function for value in plan.values.values() for function in value.returned}
    for value in plan.values.values():  # a function that gives it to nobody may be called where it is received
        giving = plan.graph.reach({*value.emitters}, inward=False) - returned - {*value.receivers}
        within = plan.graph.reach({*value.receivers}, inward=True)
        if giving:
            _Mentions(plan, dict.fromkeys(giving, value.name), within).check()


def _changed(plan: Plan) -> dict[str, str]:
    """The functions that calls must call in another way than before, each with a value that it takes or gives."""
    changed: dict[str, str] = {}
    for value in plan.values.values():
        without = {f for f in value.optional if value.providers.keys() - {f}}  # and there is somebody who has it
        for function in sorted(value.required | value.returned | value.scanned | without):
            changed.setdefault(function, value.name)
    return dict(plan.asked) | changed


def _check_function(plan: Plan, function: Function, value: str) -> None:
    """A function that changes is defined once, is called by nothing but calls, and is what its name means."""
    if function.twice:
        message = f"{function.id} is defined twice, and only one could be threaded"
        raise LoomError(message, function.where, "Rename one.")
    if function.is_dunder and (function.id.split(".")[-1] != "__init__" or plan.returned(function.id)):
        message = f"{function.id} must take or give {value}, and Python calls it by itself"
        raise LoomError(message, function.where, "Do this in an ordinary method.")
    if plan.returned(function.id) and any(isinstance(node, cst.Yield) for node in own_nodes(function.node)):
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
            kind: min(found)
            for kind in plan.graph.classes.bases
            if (found := self._changed(kind, "__call__") or self._changed(kind, "__init__"))
        }
        self.instances = Instances(self.graph, self.made.keys(), bool(self.methods))
        self.keys = [*self.graph.sources] if self.within is None else sorted({f.key for f in self.within})

    def check(self) -> None:
        for key in self.keys:
            source = self.graph.sources[key]
            if self.words & self.graph.names.texts[key].words:
                self._check_names(key)
            for node in syntax.below(source.module, cst.Attribute, cst.Call, cst.ClassDef) if self.methods else ():
                if isinstance(node, cst.Attribute):
                    self._check_method(node, node.value, node.attr.value, key)
                elif isinstance(node, cst.ClassDef):
                    self._check_class(node, key)
                elif isinstance(node, cst.Call) and self.graph.names.meaning(node.func, key) in _COMPUTED and node.args:
                    owner, name = node.args[0].value, node.args[min(1, len(node.args) - 1)].value
                    if isinstance(name, cst.SimpleString):
                        self._check_method(node, owner, str(name.evaluated_value), key)
        for key, expression, kind in self.instances.called(self.keys):
            found, kind = self.made.get(kind, min(self.changed)), kind if kind in self.made else "any class"
            self._refuse_instance(found, kind, expression, key, "")

    def _check_names(self, key: str) -> None:
        """Every name of a function that changes is that by which a call calls it."""
        names, text = self.graph.names, self.graph.names.texts[key]
        for name in text.standing:
            if name.value in self.words and (key, name) not in self.graph.followed:
                found = [function.id for function in names.functions(name, key) if function.id in self.changed]
                if found and not (name in text.binding and len(names.binds(name, key)) == 1):
                    self._refuse(found[0], "is used here in a way that", name, key, _CALL.format(name.value))

    def _check_method(self, node: cst.CSTNode, owner: cst.BaseExpression, method: str, key: str) -> None:
        """An attribute with the name of a method that changes is followed, or that of something else."""
        if method not in self.methods or (key, node) in self.graph.followed:
            return
        if self.graph.names.meaning(owner, key) or self.instances.is_foreign(owner, key):
            return  # jnp.take
        kind, classes = self.graph.class_of(owner, key), self.graph.classes
        if syntax.called(owner) == "super":
            bases = [base for name, (_, of) in classes.nodes.items() if of == key for base in classes.bases[name]]
            found = {f for base in bases for f in self._changed(base, method)}
        elif kind:
            found = {f for other in classes.family(kind) for f in self._changed(other, method)}
        else:
            found = {name for name in self.changed if name.endswith(f".{method}")}
        for name in sorted(found):
            self._refuse_instance(name, name.split(".")[0], node, key, f".{method}")

    def _changed(self, kind: str, method: str) -> set[str]:
        return self.graph.classes.methods(kind, method) & self.changed.keys()

    def _check_class(self, node: cst.ClassDef, key: str) -> None:
        """A class that has what changes stands at the top, and is what its name means."""
        graph, top = self.graph, self.graph.classes.nodes.get(node.name.value, (None, ""))[0] is node
        marks = [d.decorator for d in node.decorators if top and not graph.names.meaning(_head(d.decorator), key)]
        kinds = [(mark, node.name.value) for mark in marks]
        for base in (base.value for base in node.bases):
            head = _head(base)
            if graph.is_class(head, key):
                kinds += [] if top else [(base, syntax.dotted(head))]
            elif not graph.names.meaning(head, key):
                kinds += [(base, kind) for kind in graph.classes.bases]
        for place, kind in kinds:
            for name in sorted({found for method in self.methods for found in self._changed(kind, method)}):
                remedy = "Let the class stand at the top of the fragment, with its bases by their names."
                self._refuse(name, f"this makes another class of {kind}, which", place, key, remedy)

    def _refuse_instance(self, function: str, kind: str, node: cst.CSTNode, key: str, method: str) -> None:
        what = f"this may be an instance of {kind} that is used in a way that"
        remedy = f"Call it as `self.attribute{method}(...)`, or say the type of what has it: `layer: Block`."
        self._refuse(function, what, node, key, remedy)

    def _refuse(self, function: str, what: str, node: cst.CSTNode, key: str, remedy: str) -> None:
        if self.within is None or any(f.key == key and node in syntax.walk(f.node) for f in self.within):
            message = f"{function} must take or give {self.changed[function]}, and {what} threading cannot follow"
            raise LoomError(message, self.graph.sources[key].where(node), remedy)


def _head(node: cst.BaseExpression) -> cst.BaseExpression:
    """`Block` of `Block[int]` and of `Block(...)`."""
    while isinstance(node, (cst.Call, cst.Subscript)):
        node = node.func if isinstance(node, cst.Call) else node.value
    return node
