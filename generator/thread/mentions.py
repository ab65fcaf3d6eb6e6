"""Refuses every mention of a function that changes, but those by which a call calls it that threading edits.

A function or a method is mentioned by its name: such a name is a call that is followed, a type, a base, or an error. An
instance of a class has no name: whatever is called and may be an instance must say its class (`instances.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Set

from generator.code.tree import called_name, dotted_name
from generator.errors import LoomError
from generator.thread.functions import Function, arguments
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
    returned = {function for value in plan.values.values() for function in value.returns}
    for value in plan.values.values():  # a function that gives it to nobody may be called where it is received
        giving = plan.graph.reach(value.emitters, inward=False) - returned - {*value.receivers}
        within = plan.graph.reach(value.receivers, inward=True)
        if giving:
            _Mentions(plan, dict.fromkeys(giving, value.name), within).check()


def _changed(plan: Plan) -> dict[str, str]:
    """The functions that calls must call in another way than before, each with a value that it takes or gives."""
    changed: dict[str, str] = {}
    for value in plan.values.values():
        # a default alone changes nothing, unless there is somebody else who has the value
        taking = {f for f, optional in value.takes.items() if not optional or value.providers.keys() - {f}}
        for function in sorted(taking | value.returns | value.scanned):
            changed.setdefault(function, value.name)
    return dict(plan.asked) | changed


def _check_function(plan: Plan, function: Function, value: str) -> None:
    """A function that changes is defined once, is called by nothing but calls, and is what its name means."""
    if function.twice:
        message = f"{function.id} is defined twice, and only one could be threaded"
        raise LoomError(message, function.where, "Rename one.")
    if function.is_dunder and (function.node.name != "__init__" or plan.returned(function.id)):
        message = f"{function.id} must take or give {value}, and Python calls it by itself"
        raise LoomError(message, function.where, "Do this in an ordinary method.")
    if plan.returned(function.id) and any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in function.own_nodes):
        message = f"{function.id} must give {value}, and is a generator"
        raise LoomError(message, function.where, "Emit it in a function that returns.")
    for decorator in function.node.decorator_list:
        if not _is_plain(plan, decorator, function.key):
            word = dotted_name(decorator) or called_name(decorator)
            message = (
                f"{function.id} must take or give {value}, and is decorated with {word}, which threading cannot follow"
            )
            remedy = "Decorate a function around it, or use jax.jit with static_argnames."
            raise LoomError(message, function.source.where(decorator), remedy)


def _is_plain(plan: Plan, node: ast.expr, key: str) -> bool:
    """Whether a decorator gives a function back, to be called in the same way: jax.jit, or a partial of it."""
    meaning = plan.graph.names.meaning
    match node:
        case ast.Call(func, [wrapped], keywords) if meaning(func, key) == "functools.partial":
            return all(keyword.arg in _NAMED for keyword in keywords) and meaning(wrapped, key) == "jax.jit"
    return meaning(node, key) in ("jax.jit", "staticmethod", "classmethod")


class _Mentions:
    """The mentions of functions that change, anywhere or in some functions."""

    def __init__(self, plan: Plan, changed: dict[str, str], within: Set[str] | None = None):
        self.graph, self.changed, self.within = plan.graph, changed, within
        functions = [plan.graph.functions[name] for name in changed]
        self.words = {function.node.name for function in functions}
        self.methods = {function.node.name for function in functions if function.is_member}
        self.made = {  # class -> what changes, of what is called to make or to call an instance
            kind: min(found)
            for kind in plan.graph.classes.nodes
            if (found := self._changed(kind, "__call__") or self._changed(kind, "__init__"))
        }
        self.instances = Instances(self.graph, self.made.keys(), bool(self.methods))

    def check(self) -> None:
        keys = [*self.graph.sources]
        if self.within is not None:
            keys = sorted({self.graph.functions[function].key for function in self.within})
        for key in keys:
            self._check_names(key)
            for node in self.graph.names.texts[key].nodes if self.methods else ():
                match node:
                    case ast.Attribute(owner, method):
                        self._check_method(node, owner, method, key)
                    case ast.ClassDef():
                        self._check_class(node, key)
                    case ast.Call() if self.graph.names.meaning(node.func, key) in _COMPUTED:
                        match arguments(node):
                            case [ast.Constant(str(method)) as owner] | [owner, ast.Constant(str(method)), *_]:
                                self._check_method(node, owner, method, key)
        for key, expression, kind in self.instances.called(keys):
            found, kind = self.made.get(kind, min(self.changed)), kind if kind in self.made else "any class"
            self._refuse_instance(found, kind, expression, key, "")

    def _check_names(self, key: str) -> None:
        """Every name of a function that changes is that by which a call calls it."""
        names, text = self.graph.names, self.graph.names.texts[key]
        for name, node, scope in text.scopes.occurrences:
            if name in self.words and (key, node) not in self.graph.followed:
                variable = text.seen(name, scope)
                found = [function.id for function in names.functions(variable, key) if function.id in self.changed]
                if found and not (node in text.binding and len(names.binds(variable, key)) == 1):
                    self._refuse(found[0], "is used here in a way that", node, key, _CALL.format(name))

    def _check_method(self, node: ast.expr, owner: ast.expr, method: str, key: str) -> None:
        """An attribute with the name of a method that changes is followed, or that of something else."""
        if method not in self.methods or (key, node) in self.graph.followed:
            return
        if self.graph.names.meaning(owner, key) or self.instances.is_foreign(owner, key):
            return  # jnp.take
        found = {name for name in self.changed if name.endswith(f".{method}")}
        kinds = self.graph.classes.family(self.graph.class_of(owner, key))
        if called_name(owner) == "super":
            kinds = self.graph.classes.lineage(key.rpartition(":")[2])
        if kinds:
            found &= {f for kind in kinds for f in self._changed(kind, method)}
        for name in sorted(found):
            self._refuse_instance(name, name.split(".")[0], node, key, f".{method}")

    def _changed(self, kind: str, method: str) -> set[str]:
        return self.graph.classes.methods(kind, method) & self.changed.keys()

    def _check_class(self, node: ast.ClassDef, key: str) -> None:
        """Classes are what their names mean: they stand at the top, with decorators of libraries and bases by name."""
        is_top = self.graph.classes.nodes.get(node.name, (None, ""))[0] is node
        for place in (*node.decorator_list, *node.bases):
            head = place
            while isinstance(head, (ast.Call, ast.Subscript)):
                head = head.func if isinstance(head, ast.Call) else head.value
            is_plain = is_top and place in node.bases and self.graph.is_class(head, key)
            if not is_plain and not self.graph.names.meaning(head, key):
                changed = min(name for name in self.changed if self.graph.functions[name].is_member)
                remedy = "Let the class stand at the top of the fragment, with its bases by their names."
                self._refuse(changed, "this makes another class, which", place, key, remedy)

    def _refuse_instance(self, function: str, kind: str, node: ast.AST, key: str, method: str) -> None:
        what = f"this may be an instance of {kind} that is used in a way that"
        remedy = f"Call it as `self.attribute{method}(...)`, or say the type of what has it: `layer: Block`."
        self._refuse(function, what, node, key, remedy)

    def _refuse(self, function: str, what: str, node: ast.AST, key: str, remedy: str) -> None:
        hosts = [self.graph.functions[name] for name in self.within or ()]
        if self.within is None or any(f.key == key and node in f.nodes for f in hosts):
            message = f"{function} must take or give {self.changed[function]}, and {what} threading cannot follow"
            raise LoomError(message, self.graph.sources[key].where(node), remedy)
