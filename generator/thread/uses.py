"""Refuses to thread a function that is used in a way that cannot be followed: it would be called wrongly there.

Every mention of a function that changes, anywhere in the package, must be that by which a call calls it that threading
edits, or be known to mean something else.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Set

import libcst as cst

from generator.code import syntax
from generator.code.memory import remembered
from generator.errors import LoomError
from generator.language.grammar import own_nodes
from generator.thread.functions import Function, Wrapper
from generator.thread.instances import Instances
from generator.thread.plan import Plan

_DERIVATIVES = ("grad", "value_and_grad")
_PLAIN = ("staticmethod", "classmethod")
_COUNTING = ("argnums", "static_argnums", "donate_argnums")
_HARMLESS = frozenset(  # what else wrappers are told: nothing about single parameters and results, or by their names
    {
        *("static_argnames", "donate_argnames", "inline", "keep_unused", "device", "backend", "compiler_options"),
        *("prevent_cse", "policy", "concrete", "has_aux", "holomorphic", "allow_int", "reduce_axes", "graph"),
    }
)
_EXCUSING = (cst.Annotation, cst.Call, cst.ExceptHandler, cst.MatchClass, cst.Attribute, cst.ClassDef)
_COMPUTED = ("getattr", "operator.attrgetter", "operator.methodcaller")


def check_uses(plan: Plan) -> None:
    """Checks every use of every function that takes or gives more than before."""
    changed = _changed(plan)
    for name in sorted(changed):
        _check_function(plan, plan.graph.functions[name], changed[name])
    instances = Instances(plan.graph)
    _Uses(plan, instances, changed).check()
    for value in plan.values.values():  # a function that gives it to nobody may be called where it is received
        giving = plan.graph.reach(set(value.emitters), inward=False) - plan.returned.keys() - {*value.receivers}
        _Uses(
            plan, instances, dict.fromkeys(giving, value.name), plan.graph.reach({*value.receivers}, inward=True)
        ).check()
    for call in (call for call in plan.graph.calls if call.callee in changed):
        where = plan.graph.functions[call.caller].source.where(call.node)
        _check_wrappers(plan, plan.graph.functions[call.callee], changed[call.callee], call.wrappers, where)


def _changed(plan: Plan) -> dict[str, str]:
    """The functions that calls must call in another way than before, each with a value that it takes or gives."""
    elsewhere = {  # it can do without, and there is somebody who has it
        function: [name for name in names if plan.values[name].providers.keys() - {function}]
        for function, names in plan.optional.items()
    }
    tables = (plan.required, plan.returned, plan.scanned, elsewhere)
    return dict(plan.asked) | {function: names[0] for table in tables for function, names in table.items() if names}


def _check_function(plan: Plan, function: Function, value: str) -> None:
    """A function that changes is defined once, and a decorator gives it back, to be called in the same way."""
    if function.twice:
        raise LoomError(
            f"{function.id} is defined twice, and only one could be threaded", function.where, "Rename one."
        )
    if function.is_dunder and (function.id.split(".")[-1] != "__init__" or plan.returned.get(function.id)):
        message = f"{function.id} must take or give {value}, and Python calls it by itself"
        raise LoomError(message, function.where, "Do this in an ordinary method.")
    if plan.returned.get(function.id) and any(isinstance(node, cst.Yield) for node in own_nodes(function.node)):
        message = f"{function.id} must give {value}, and is a generator"
        raise LoomError(message, function.where, "Emit it in a function that returns.")
    for decorator in function.node.decorators:
        wrapper, where = plan.graph.wrappers.read(decorator.decorator, function.key), function.source.where(decorator)
        if wrapper:
            _check_wrappers(plan, function, value, (wrapper,), where)
        elif syntax.dotted(decorator.decorator) not in _PLAIN:
            word = syntax.dotted(decorator.decorator) or syntax.called(decorator.decorator)
            message = f"{function.id} must take or give {value}, and is decorated with {word}"
            remedy = "Decorate a function around it, or use jax.jit, jax.checkpoint or jax.grad, or a partial of them."
            raise LoomError(f"{message}, which threading cannot follow", where, remedy)


def _check_wrappers(plan: Plan, function: Function, value: str, wrappers: Iterable[Wrapper], where: str) -> None:
    """What wraps a function counts its parameters and results: those that it had before stay where they are."""
    required, returned = plan.required.get(function.id), plan.returned.get(function.id)
    kept = sum(1 for parameter in function.positional if parameter.default is None) if required else 1000
    for wrapper in wrappers:
        derived = wrapper.word.split(".")[-1] in _DERIVATIVES
        if returned and derived:
            message = f"{function.id} also returns {returned[0]}, and is differentiated here"
            remedy = f"Receive {returned[0]} in {function.id} or further in, and add it to the result."
            raise LoomError(message, where, remedy)
        words = {a.keyword.value if a.keyword else "": a.value for a in wrapper.arguments}
        counted = {word: _numbers(node) for word, node in words.items() if word not in _HARMLESS}
        if derived and "argnums" not in counted:
            counted["argnums"] = [0]
        for word, numbers in counted.items():
            if word not in _COUNTING or not all(0 <= number < kept for number in numbers or [-1]):
                what = f"{word or 'another argument'} counts parameters"
                message = f"{function.id} takes {required[0]} before its parameters with defaults" if required else ""
                message = message or f"{function.id} must take or give {value}"
                remedy = "Name them, as in static_argnames, or give the parameters no defaults."
                raise LoomError(f"{message}, and {what}", where, remedy)


def _numbers(node: cst.BaseExpression) -> list[int]:
    """The numbers that an expression writes out, none where it does not."""
    try:
        value = ast.literal_eval(cst.Module([]).code_for_node(node))
    except (ValueError, SyntaxError):
        return []
    values = list(value) if isinstance(value, (tuple, list)) else [value]
    return values if all(isinstance(number, int) for number in values) else []


class _Uses:
    """The mentions of functions and methods that change, anywhere or in some functions."""

    def __init__(self, plan: Plan, instances: Instances, changed: dict[str, str], within: Set[str] | None = None):
        self.graph, self.changed, self.instances = plan.graph, changed, instances
        self.within = None if within is None else [plan.graph.functions[name] for name in within]
        self.methods = {name.split(".")[1] for name in changed if plan.graph.functions[name].is_member}
        aliases = (name for (_, name), function in plan.graph.aliases.items() if function in changed)
        self.words = {part for name in changed for part in name.rpartition(":")[2].split(".")}.union(aliases)
        self.made = {kind: self.graph.method(kind, "__init__") for kind in self.graph.classes.names}

    def check(self) -> None:
        for key in self.graph.sources if self.changed else ():
            self._check_names(key)
        if not self.methods:
            return
        words = {*self.methods, "getattr", "operator", "class "}
        for key, source in self.graph.sources.items():
            nodes = syntax.below(source.module, cst.Attribute, cst.Call, cst.ClassDef)
            for node in nodes if any(word in source.text for word in words) else ():
                if isinstance(node, cst.Attribute) and node.attr.value in self.methods:
                    self._check_attribute(node, node.value, node.attr.value, key)
                elif isinstance(node, cst.Call) and self.graph.names.meaning(node.func, key) in _COMPUTED and node.args:
                    self._check_computed(node, key)
                elif isinstance(node, cst.ClassDef):
                    self._check_class(node, key)
        for key, expression, kinds in self.instances.calls:
            for kind in sorted({other for held in kinds - {"*"} for other in self.graph.classes.family(held)}):
                for method in ("__call__", "__init__"):
                    self._check_method({self.graph.method(kind, method)}, kind, expression, key)
            if "*" in kinds:  # a method whose name is computed
                self._check_method(self.changed.keys(), "any class", expression, key)

    def _check_names(self, key: str) -> None:
        """Every name of a function that changes, or a local name for one, is that by which a call calls it."""
        text = self.graph.names.texts[key]
        excused = _excused(self.graph.sources[key].module)
        for name in text.standing if self.words & text.words else ():
            if name.value not in self.words:
                continue
            function = self._function(name, key)
            if function not in self.changed or (key, name) in self.graph.followed:
                continue
            kind = self.graph.is_class(name, key)
            once = name in text.binding and (kind or len(text.bound[text.of(name)]) == 1)
            if once or (kind and name in excused):
                continue
            remedy = f"Call it by its name: {name.value}(...), in jax.jit, jax.checkpoint, jax.grad or jax.lax.scan"
            self._refuse(function, "is used here in a way that", name, key, f"{remedy} at most.")

    def _function(self, name: cst.Name, key: str) -> str:
        """The function that a name may mean."""
        names = self.graph.names
        variable, definition = names.variable(name, key), names.definition(name, key)
        if self.graph.is_class(name, key):
            return self.made[name.value]
        if definition or variable in self.graph.aliases:
            return definition or self.graph.aliases[variable]
        return next((function.id for function in names.functions(variable, key) if function.id in self.changed), "")

    def _check_attribute(self, node: cst.BaseExpression, owner: cst.BaseExpression, method: str, key: str) -> None:
        """An attribute with the name of a method that changes is followed, or that of something else."""
        foreign = self.graph.names.meaning(node, key) or self.instances.is_foreign(owner, key)
        if method not in self.methods or (key, node) in self.graph.followed or foreign:
            return
        meant = self.graph.meant(owner, method, key)
        if meant is None:
            meant = {name for name in self.changed if name.endswith(f".{method}")}
        for found in sorted(meant & self.changed.keys()):
            self._check_method({found}, found.split(".")[0], node, key)

    def _check_computed(self, call: cst.Call, key: str) -> None:
        owner, name = call.args[0].value, call.args[1 if len(call.args) > 1 else 0].value
        if isinstance(name, cst.SimpleString):
            self._check_attribute(call, owner, str(name.evaluated_value), key)

    def _check_class(self, node: cst.ClassDef, key: str) -> None:
        """A class is known to have what changes, or not to have it."""
        graph = self.graph
        top = node in graph.sources[key].module.body
        for base in (base.value for base in node.bases):
            name = base.value if isinstance(base, cst.Subscript) else base
            if graph.is_class(name, key):
                kinds = [] if top else [cst.ensure_type(name, cst.Name).value]
            else:
                kinds = [] if graph.names.meaning(name, key) else sorted(graph.classes.names)
            for kind in kinds:
                self._check_method({graph.method(kind, method) for method in self.methods}, kind, base, key)
        for decorator in node.decorators if top else ():
            word = decorator.decorator.func if isinstance(decorator.decorator, cst.Call) else decorator.decorator
            if not graph.names.meaning(word, key):
                kind = node.name.value
                self._check_method({graph.method(kind, method) for method in self.methods}, kind, decorator, key)

    def _check_method(self, meant: Set[str], kind: str, node: cst.CSTNode, key: str) -> None:
        for found in sorted(meant & self.changed.keys()):
            remedy = "Call it by a name or an attribute of one type, and say which: `layer: Block`."
            self._refuse(found, f"this may be an instance of {kind} that is used in a way that", node, key, remedy)

    def _refuse(self, function: str, what: str, node: cst.CSTNode, key: str, remedy: str) -> None:
        if self.within is None or any(f.key == key and node in syntax.walk(f.node) for f in self.within):
            message = f"{function} must take or give {self.changed[function]}, and {what} threading cannot follow"
            raise LoomError(message, self.graph.sources[key].where(node), remedy)


@remembered
def _excused(module: cst.Module) -> frozenset[cst.CSTNode]:
    """The names of classes where they make no instance: `x: Block`, `isinstance(x, Block)`, `except Block`."""
    found: list[cst.CSTNode] = []
    for node in syntax.below(module, *_EXCUSING):
        if isinstance(node, cst.Annotation) or syntax.called(node) in ("isinstance", "issubclass"):
            found += syntax.walk(node)
        elif isinstance(node, cst.ExceptHandler) and node.type:
            found += syntax.walk(node.type)
        elif isinstance(node, cst.MatchClass):
            found.append(node.cls)
        elif isinstance(node, cst.Attribute):
            found.append(node.value)
        elif isinstance(node, cst.ClassDef):
            found += (base.value for base in node.bases)
    return frozenset(found)
