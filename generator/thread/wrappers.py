"""Calls that give back a function to be called in the same way: `jax.jit(f)`, or what a package makes of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import libcst as cst

from generator.code import syntax
from generator.code.names import any_bound, own_bound
from generator.language.grammar import own_nodes
from generator.language.parts import Import
from generator.thread.functions import Function, Wrapper

WRAPPERS = frozenset(
    {
        *("jax.checkpoint", "jax.ad_checkpoint.checkpoint", "jax.remat", "jax.jit", "jax.grad", "jax.value_and_grad"),
        *("flax.nnx.remat", "flax.nnx.jit", "flax.nnx.grad", "flax.nnx.value_and_grad"),
    }
)
SCAN = "jax.lax.scan"
_USUAL = {"nnx": "flax.nnx", "lax": "jax.lax", "partial": "functools.partial"}  # where no import says more


class Wrappers:
    """Knows wrappers by what their names mean.

    Args:
        functions: id -> function, of all definitions.
        scopes: the functions around one, itself first.
        imports: path of a fragment -> the name that an import binds -> the import.
    """

    def __init__(
        self,
        functions: Mapping[str, Function],
        scopes: Callable[[Function], list[Function]],
        imports: Mapping[str, Mapping[str, Import]],
    ):
        self._functions, self._scopes, self._imports = functions, scopes, imports

    def meaning(self, node: cst.CSTNode, function: Function) -> str:
        """`jax.lax.scan` of a name in a function that an import gives that meaning, else ''."""
        head, dot, rest = syntax.dotted(node).partition(".")
        if not head or head in self._functions or head in any_bound(self._scopes(function)[-1].node):
            return ""
        for path in function.source.traced.paths():
            for imported in self._imports.get(path, {}).values():
                if imported.alias == head:
                    full = f"{imported.module}.{imported.name}" if imported.name else imported.module
                    return (head if imported.module.startswith(f"{head}.") else full) + dot + rest
        return _USUAL.get(head, head) + dot + rest

    def around(self, node: cst.BaseExpression, function: Function) -> tuple[tuple[Wrapper, ...], cst.BaseExpression]:
        """The wrappers around `f` in `jax.jit(jax.checkpoint(f))`, the outermost one first, and `f`."""
        found: list[Wrapper] = []
        while isinstance(node, cst.Call) and node.args and not node.args[0].keyword and not node.args[0].star:
            wrapper = self.read(node.func, function)
            if wrapper is None:
                break
            found.append(wrapper._replace(counts=counting(node) or wrapper.counts))
            node = node.args[0].value
        return tuple(found), node

    def read(self, node: cst.BaseExpression, function: Function, seen: frozenset[str] = frozenset()) -> Wrapper | None:
        """The wrapper that an expression is, if any: `jax.jit`, a partial of it, a local name for either."""
        if isinstance(node, cst.Call):
            plain = node.args and not any(argument.star or not argument.keyword for argument in node.args[1:])
            if not plain or self.meaning(node.func, function) != "functools.partial":
                return None
            wrapper = self.read(node.args[0].value, function, seen)
            return wrapper and wrapper._replace(counts=counting(node) or wrapper.counts)
        if self.meaning(node, function) in WRAPPERS:
            return Wrapper(self.meaning(node, function), "")
        name = syntax.dotted(node)
        for scope in self._scopes(function):
            if f"{scope.id}.{name}" in self._functions:
                return self._returned(self._functions[f"{scope.id}.{name}"], seen)
            if name in own_bound(scope.node):
                return self._bound(name, scope, seen)
        return self._returned(self._functions[name], seen) if name in self._functions else None

    def _bound(self, name: str, scope: Function, seen: frozenset[str]) -> Wrapper | None:
        """What a local name is assigned, each time."""
        key = f"{scope.id} {name}"
        values = scope.bindings.get(name, []) if key not in seen and name not in scope.parameter_names else []
        found = [self.read(value, scope, seen | {key}) for value in values]
        return next((w for w in found if w and w.counts), found[0]) if found and all(found) else None

    def _returned(self, function: Function, seen: frozenset[str]) -> Wrapper | None:
        """What a function of the package wraps its first parameter in, where it does nothing else with it."""
        returns = [node.value for node in own_nodes(function.node) if isinstance(node, cst.Return)]
        plain = len(returns) == 1 and function.id not in seen and not function.node.decorators
        value = returns[0] if plain and function.positional else None
        if not isinstance(value, cst.Call) or not value.args:
            return None
        first = function.positional[0].name.value
        uses = [n for n in syntax.walk(function.node.body) if isinstance(n, cst.Name) and n.value == first]
        if len(uses) != 1 or uses[0] is not value.args[0].value:
            return None
        wrapper = self.read(value.func, function, seen | {function.id})
        return wrapper and wrapper._replace(counts=counting(value) or wrapper.counts)


def counting(call: cst.Call) -> str:
    """The keyword of a call that counts parameters: `static_argnums`."""
    words = [argument.keyword.value for argument in call.args if argument.keyword]
    return next((word for word in words if "argnums" in word), "")
