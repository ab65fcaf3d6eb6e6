"""Calls that give back a function to be called in the same way: `jax.jit(f)`, or what a package makes of one."""

from __future__ import annotations

import libcst as cst

from generator.code import syntax
from generator.language.grammar import own_nodes
from generator.thread.functions import Function, Wrapper
from generator.thread.variables import Names

WRAPPERS = frozenset(
    {
        *("jax.checkpoint", "jax.ad_checkpoint.checkpoint", "jax.remat", "jax.jit", "jax.grad", "jax.value_and_grad"),
        *("flax.nnx.remat", "flax.nnx.jit", "flax.nnx.grad", "flax.nnx.value_and_grad"),
    }
)
SCAN = "jax.lax.scan"


class Wrappers:
    """Knows wrappers by what their names mean."""

    def __init__(self, names: Names):
        self._names = names

    def around(self, node: cst.BaseExpression, key: str) -> tuple[tuple[Wrapper, ...], cst.BaseExpression]:
        """The wrappers around `f` in `jax.jit(jax.checkpoint(f))`, the outermost one first, and `f`."""
        found: list[Wrapper] = []
        while isinstance(node, cst.Call) and node.args and not node.args[0].keyword and not node.args[0].star:
            wrapper = self.read(node.func, key)
            if wrapper is None:
                break
            found.append(_with(wrapper, node))
            node = node.args[0].value
        return tuple(found), node

    def read(self, node: cst.BaseExpression, key: str, seen: frozenset[cst.CSTNode] = frozenset()) -> Wrapper | None:
        """The wrapper that an expression is, if any: `jax.jit`, a partial of it, a local name for either."""
        if node in seen:
            return None
        if isinstance(node, cst.Call):
            plain = node.args and not any(argument.star or not argument.keyword for argument in node.args[1:])
            if not plain or self._names.meaning(node.func, key) != "functools.partial":
                return None
            wrapper = self.read(node.args[0].value, key, seen | {node})
            return wrapper and _with(wrapper, node)
        if (word := self._names.meaning(node, key)) in WRAPPERS:
            return Wrapper(word)
        if not isinstance(node, cst.Name):
            return None
        function, value = self._names.function(node, key), self._names.value(node, key)
        if function:
            return self._returned(function, seen | {node})
        return self.read(value, key, seen | {node}) if value else None

    def _returned(self, function: Function, seen: frozenset[cst.CSTNode]) -> Wrapper | None:
        """What a function of the package wraps its first parameter in, where it does nothing else with it."""
        returns = [node.value for node in own_nodes(function.node) if isinstance(node, cst.Return)]
        plain = len(returns) == 1 and not function.node.decorators
        value = returns[0] if plain and function.positional else None
        if not isinstance(value, cst.Call) or not value.args:
            return None
        first = function.positional[0].name.value
        uses = [n for n in syntax.walk(function.node.body) if isinstance(n, cst.Name) and n.value == first]
        if len(uses) != 1 or uses[0] is not value.args[0].value:
            return None
        wrapper = self.read(value.func, function.key, seen)
        return wrapper and _with(wrapper, value)


def _with(wrapper: Wrapper, call: cst.Call) -> Wrapper:
    """A wrapper that is also given the arguments after the first one."""
    return wrapper._replace(arguments=(*wrapper.arguments, *call.args[1:]))
