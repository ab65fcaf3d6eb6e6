"""Hashes a jaxpr so that equal programs have equal hashes, however they were written.

An equation is hashed from its operands, so order and names do not count, and dead equations are left out. All else
counts: the primitive, its parameters, literals and constants by their bytes, the order of effects, how often an
equation occurs. A parameter of an unknown type is an error, and never left out.

It imports jax, and is for the processes that trace.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import jax
import numpy as np
from jax._src import core, mesh, named_sharding
from jax._src.lax import slicing

# parameters that do not change the computation: names for people, and places in sources
IGNORED = {
    **{call: {"name"} for call in ("jit", "closed_call", "core_call")},
    "pallas_call": {"name", "metadata", "debug", "name_and_src_info"},
    # rules of gradients: a program that takes a gradient has their equations
    "custom_jvp_call": {"jvp_jaxpr_fun"},
    "custom_vjp_call": {"fwd_jaxpr_thunk", "bwd", "out_trees"},
    **{remat: {"policy"} for remat in ("remat2", "checkpoint")},
}
IGNORED_FIELDS = {"debug_info", "origin", "name_and_src_info"}  # of dataclasses
# types whose repr has all of their content
PLAIN: tuple[type, ...] = type(None), bool, int, float, complex, str, bytes, type, enum.Enum, np.dtype
PLAIN += (jax.tree_util.PyTreeDef, slicing.GatherDimensionNumbers, slicing.ScatterDimensionNumbers)
PLAIN_NAMES = {"DynamicGridDim", "RaggedDotDimensionNumbers", "Layout"}


class UnknownType(Exception):
    """Raised for a value of a type that is not known here."""


def digest(*parts: Any) -> str:
    """Returns a hash of strings and tuples of strings."""
    return blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def array_key(x: Any) -> tuple:
    """Returns a key of an array: its type and content."""
    if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        return str(x.dtype), *array_key(jax.random.key_data(x))
    x = np.asarray(x)
    return "array", str(x.dtype), x.shape, blake2b(np.ascontiguousarray(x).tobytes(), digest_size=16).hexdigest()


def aval_key(aval: Any) -> tuple:
    """Returns a key of the type of an array, or of a reference to one."""
    if isinstance(aval, core.ShapedArray):
        sharding, varying = str(getattr(aval.sharding, "spec", aval.sharding)), str(getattr(aval, "vma", ""))
        return "aval", aval.shape, str(aval.dtype), aval.weak_type, sharding, varying, str(aval.memory_space)
    if hasattr(aval, "inner_aval"):
        return type(aval).__name__, aval_key(aval.inner_aval), str(getattr(aval, "memory_space", None))
    if isinstance(aval, core.AbstractToken):
        return ("token",)
    raise UnknownType(f"a value of type {type(aval).__name__}")


class JaxprHasher:
    """Hashes jaxprs, each once."""

    def __init__(self) -> None:
        self._hashes: dict[tuple, tuple[Any, str]] = {}

    def program(self, closed: Any, names_in: Sequence[str], names_out: Sequence[str]) -> str:
        """Returns the hash of a whole program, whose inputs and outputs count by name, in any order."""
        inputs = [digest("in", name, aval_key(v.aval)) for name, v in zip(names_in, closed.jaxpr.invars, strict=True)]
        outputs, rest = self._hash_equations(closed.jaxpr, [self.constant(c) for c in closed.consts], inputs)
        return digest(sorted(zip(names_out, outputs, strict=True)), rest)

    def jaxpr(self, jaxpr: Any, consts: Iterable[Any] = ()) -> str:
        """Returns the hash of an inner jaxpr, whose inputs count by position."""
        constants = [self.constant(c) for c in consts]
        key = id(jaxpr), *constants
        if key not in self._hashes:
            inputs = [digest("in", number, aval_key(v.aval)) for number, v in enumerate(jaxpr.invars)]
            missing = range(len(constants), len(jaxpr.constvars))
            constants += [digest("const", number, aval_key(jaxpr.constvars[number].aval)) for number in missing]
            # the jaxpr is kept, so that no other gets its id
            self._hashes[key] = jaxpr, digest(*self._hash_equations(jaxpr, constants, inputs))
        return self._hashes[key][1]

    def constant(self, value: Any) -> str:
        """Returns the hash of a constant of a jaxpr."""
        weak = bool(getattr(getattr(value, "aval", None), "weak_type", False))
        return digest("constant", self.key(value), weak)

    def _hash_equations(self, jaxpr: Any, constants: list[str], inputs: list[str]) -> tuple[list[str], tuple]:
        """Returns the hashes of the outputs, and a key of the effects and of the number of equations."""
        live = _live_equations(jaxpr)
        values: dict[Any, str] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *inputs], strict=True))

        def read(atom: Any) -> str:
            if isinstance(atom, core.Literal):
                return digest("literal", aval_key(atom.aval), array_key(np.asarray(atom.val)))
            return values[atom]

        effects, counts = "", Counter[str]()
        for equation in live:
            name = equation.primitive.name
            ignored = IGNORED.get(name, set())
            params = sorted((k, self.key(v)) for k, v in equation.params.items() if k not in ignored)
            operands = [read(atom) for atom in equation.invars]
            if name == "add_any":  # of two gradients, which JAX adds in the order of their lines
                operands.sort()
            context = str(equation.ctx.compute_type), str(equation.ctx.xla_metadata)
            hashed = digest(name, params, operands, context, effects if equation.effects else "")
            if equation.effects:
                effects = digest(hashed, sorted(type(effect).__name__ for effect in equation.effects))
            counts[hashed] += 1
            for number, v in enumerate(equation.outvars):
                values[v] = digest(hashed, number, aval_key(v.aval))
        repeated = sorted((hashed, count) for hashed, count in counts.items() if count > 1)
        return [read(atom) for atom in jaxpr.outvars], (effects, len(live), repeated)

    def key(self, value: Any) -> Any:
        """Returns a key of a parameter: strings and tuples."""
        name = type(value).__name__
        if isinstance(value, core.ClosedJaxpr):
            return "jaxpr", self.jaxpr(value.jaxpr, value.consts)
        if isinstance(value, core.Jaxpr):
            return "jaxpr", self.jaxpr(value)
        if isinstance(value, (core.ShapedArray, core.AbstractToken)) or hasattr(value, "inner_aval"):
            return aval_key(value)
        if isinstance(value, PLAIN) or name in PLAIN_NAMES:
            return name, repr(value)
        if name == "PRNGImpl":  # its fields are functions of JAX
            return name, value.name
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            return array_key(value)
        if isinstance(value, jax.sharding.PartitionSpec):  # before tuple
            return name, str(value), str(value.unreduced), str(value.reduced)
        if isinstance(value, (tuple, list)):
            return name, tuple(self.key(item) for item in value)
        if isinstance(value, (set, frozenset)):
            return name, tuple(sorted(map(repr, map(self.key, value))))
        if isinstance(value, dict) or name == "FrozenDict":
            return "dict", tuple(sorted((repr(self.key(k)), self.key(v)) for k, v in dict(value).items()))
        if isinstance(value, jax.sharding.NamedSharding):
            return name, self.key(value.mesh), self.key(value.spec), str(value.memory_kind)
        if isinstance(value, (mesh.Mesh, mesh.AbstractMesh)):  # by its axes: the devices depend on the machine
            return "mesh", tuple(value.shape.items()), str(value.axis_types)
        if isinstance(value, named_sharding.UnspecifiedValue):
            return (name,)
        if isinstance(value, functools.partial):
            return name, self.key(value.func), self.key(value.args), self.key(value.keywords)
        if dataclasses.is_dataclass(value):
            fields = [f.name for f in dataclasses.fields(value)]
            return name, tuple((f, self.key(getattr(value, f))) for f in fields if f not in IGNORED_FIELDS)
        raise UnknownType(f"a parameter of type {type(value).__module__}.{type(value).__qualname__}")


def _live_equations(jaxpr: Any) -> list[Any]:
    """Returns the equations that an output or an effect needs, in order."""
    needed = {v for v in jaxpr.outvars if not isinstance(v, core.Literal)}
    live = []
    for equation in reversed(jaxpr.eqns):
        if equation.effects or not needed.isdisjoint(equation.outvars):
            live.append(equation)
            needed.update(v for v in equation.invars if not isinstance(v, core.Literal))
    return live[::-1]
