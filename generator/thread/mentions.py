"""Refuses every reference to a function that changes, except the calls of it that threading edits.

A reference to a function or a method is a followed call, a type, a base, or an error. An instance of a class has no
name: whatever is called and may be an instance must declare its class (`instances.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Set

from generator.code.tree import called_name, dotted_name
from generator.errors import LoomError
from generator.thread.functions import Function, arguments
from generator.thread.instances import Instances
from generator.thread.plan import Plan

_BY_NAME = ("static_argnames", "donate_argnames")  # arguments of jax.jit that name parameters
_COMPUTED = ("getattr", "operator.attrgetter", "operator.methodcaller")
_CALL = "Call it by its name: `{0}(...)`, also in a lambda: `jax.jit(lambda x: {0}(x))`."


def check_mentions(plan: Plan) -> None:
    """Checks every reference to every function that takes or returns more than before."""
    changed: dict[str, str] = dict(plan.requests)  # each with a value that it takes or returns
    for value in reversed(plan.values.values()):
        # a parameter with a default changes no call, unless another function has the value
        taking = {f for f, has_default in value.takes.items() if not has_default or value.providers.keys() - {f}}
        changed |= dict.fromkeys(taking | value.returns | value.scanned, value.name)
    for name in sorted(changed):
        _check_function(plan, plan.graph.functions[name], changed[name])
    if changed:
        _Mentions(plan, changed).check()
    returning = {function for value in plan.values.values() for function in value.returns}
    for value in plan.values.values():  # a function that returns it to nobody may be called where it is received
        unread = plan.graph.reachable(value.emitters, inward=False) - returning - {*value.receivers}
        if unread:
            receiving = plan.graph.reachable(value.receivers, inward=True)
            _Mentions(plan, dict.fromkeys(unread, value.name), receiving).check()


def _check_function(plan: Plan, function: Function, value: str) -> None:
    """Refuses a function that changes and is defined twice, is decorated, is a generator, or is called by Python."""
    message, where, remedy = "", function.where, ""
    returned = plan.functions[function.id].returned
    if function.is_duplicate:
        message, remedy = f"{function.id} is defined twice, and only one could be threaded", "Rename one."
    elif function.is_dunder and (function.node.name != "__init__" or returned):
        message = f"{function.id} must take or return {value}, and Python calls it implicitly"
        remedy = "Do this in an ordinary method."
    elif returned and any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in function.own_nodes):
        message = f"{function.id} must return {value}, and is a generator"
        remedy = "Emit it in a function that returns."
    elif other := next((d for d in function.node.decorator_list if not _is_harmless(plan, d, function.key)), None):
        word, where = dotted_name(other) or called_name(other), function.source.where(other)
        message = f"{function.id} must take or return {value}, and is decorated with {word}, "
        message += "which threading cannot follow"
        remedy = "Decorate a function around it, or use jax.jit with static_argnames."
    if message:
        raise LoomError(message, where, remedy)


def _is_harmless(plan: Plan, node: ast.expr, key: str) -> bool:
    """Returns whether a decorator returns a function that is called like the decorated one, such as jax.jit."""
    meaning = plan.graph.names.meaning
    match node:
        case ast.Call(func, [wrapped], keywords) if meaning(func, key) == "functools.partial":
            return all(keyword.arg in _BY_NAME for keyword in keywords) and meaning(wrapped, key) == "jax.jit"
    return meaning(node, key) in ("jax.jit", "staticmethod", "classmethod")


class _Mentions:
    """The references to some functions.

    Args:
        changed: the functions, each with a value that it takes or returns.
        within: the functions in which to look, None for the whole package.
    """

    def __init__(self, plan: Plan, changed: dict[str, str], within: Set[str] | None = None):
        self.graph, self.changed, self.within = plan.graph, changed, within
        functions = [plan.graph.functions[name] for name in changed]
        self.names = {function.node.name for function in functions}
        self.methods = {function.node.name for function in functions if function.is_member}
        self.classes = {  # class -> the function that changes where the class or its instances are called
            cls: min(methods)
            for cls in plan.graph.classes.nodes
            if (methods := self._changed_methods(cls, "__call__") or self._changed_methods(cls, "__init__"))
        }
        self.instances = Instances(self.graph, self.classes.keys(), bool(self.methods))

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
        for key, expression, class_name in self.instances.find_calls(keys):
            self._refuse_instance(self.classes.get(class_name, min(self.changed)), class_name, expression, key, "")

    def _check_names(self, key: str) -> None:
        """Refuses a name of a function that changes unless a followed call calls it."""
        names, text = self.graph.names, self.graph.names.texts[key]
        for name, node, scope in text.scopes.occurrences:
            if name in self.names and (key, node) not in self.graph.followed:
                variable = text.lookup(name, scope)
                functions = [f.id for f in names.functions(variable, key) if f.id in self.changed]
                if functions and not (node in text.binding_nodes and len(names.bindings(variable, key)) == 1):
                    self._refuse(functions[0], "is used here in a way that", node, key, _CALL.format(name))

    def _check_method(self, node: ast.expr, owner: ast.expr, method: str, key: str) -> None:
        """Refuses an attribute that may be a method that changes, unless a followed call calls it."""
        is_followed = method not in self.methods or (key, node) in self.graph.followed
        if is_followed or self.instances.is_foreign(owner, key):  # jnp.take
            return
        functions = {name for name in self.changed if name.endswith(f".{method}")}
        classes = self.graph.classes.family(self.graph.class_of(owner, key))
        if called_name(owner) == "super":
            classes = self.graph.classes.lineage(key.rpartition(":")[2])
        if classes:
            functions &= {f for class_name in classes for f in self._changed_methods(class_name, method)}
        for name in sorted(functions):
            self._refuse_instance(name, name.split(".")[0], node, key, f".{method}")

    def _changed_methods(self, class_name: str, method: str) -> set[str]:
        return self.graph.classes.methods(class_name, method) & self.changed.keys()

    def _check_class(self, node: ast.ClassDef, key: str) -> None:
        """Refuses a class that its name may not mean: nested, or with a decorator or a base of the package's own."""
        is_top = self.graph.classes.nodes.get(node.name, (None, ""))[0] is node
        for expression in (*node.decorator_list, *node.bases):
            head = expression
            while isinstance(head, (ast.Call, ast.Subscript)):
                head = head.func if isinstance(head, ast.Call) else head.value
            is_base = is_top and expression in node.bases and self.graph.is_class(head, key)
            if not is_base and not self.graph.names.meaning(head, key):
                changed = min(name for name in self.changed if self.graph.functions[name].is_member)
                remedy = "Let the class stand at the top of the fragment, with its bases by their names."
                self._refuse(changed, "this makes another class, which", expression, key, remedy)

    def _refuse_instance(self, function: str, class_name: str, node: ast.AST, key: str, method: str) -> None:
        problem = f"this may be an instance of {class_name} that is used in a way that"
        remedy = f"Call it as `self.attribute{method}(...)`, or declare the type of its variable: `layer: Block`."
        self._refuse(function, problem, node, key, remedy)

    def _refuse(self, function: str, problem: str, node: ast.AST, key: str, remedy: str) -> None:
        hosts = [self.graph.functions[name] for name in self.within or ()]
        if self.within is None or any(f.key == key and node in f.nodes for f in hosts):
            message = f"{function} must take or return {self.changed[function]}, and {problem} threading cannot follow"
            raise LoomError(message, self.graph.sources[key].where(node), remedy)
