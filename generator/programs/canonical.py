"""A digest of a jaxpr that is the same for the same program, however it was written.

Equations are hashed from what they read, so order and names do not count, and what nobody reads is left out. All else
counts: what an equation is, each of its parameters, literals and constants by their bytes, the order of effects, how
often a thing is computed. A parameter of a type that is not known here is an error, and never left out.

Imports jax: for the processes that trace.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import jax
import numpy as np
from jax._src import core, mesh, named_sharding
from jax._src.lax import slicing

from generator.programs.bytecode import code_key
from generator.programs.guard import Unknown

# What says nothing about the program: names for people, and places in sources.
NAMES = {
    "jit": {"name"},
    "pallas_call": {"name", "metadata", "debug", "name_and_src_info"},
    # its rules for gradients: a gradient that is taken has them in its own equations
    "custom_jvp_call": {"jvp_jaxpr_fun"},
    "custom_vjp_call": {"fwd_jaxpr_thunk", "bwd", "out_trees"},
    "remat2": {"policy"},  # the same: what it keeps is in the equations of the gradient
    "checkpoint": {"policy"},
}
NAMES["closed_call"] = NAMES["core_call"] = {"name"}
FIELDS_OF_PEOPLE = {"debug_info", "origin", "name_and_src_info"}
PLACES = {"sharding_constraint", "shard_map", "reshard", "psum", "psum2", "psum_invariant", "all_gather", "pvary"}
PLACES |= {"reduce_scatter", "all_to_all", "ppermute", "axis_index", "pmax", "pmin", "all_gather_invariant", "pcast"}
PLACES |= {"ragged_all_to_all", "psum_scatter", "layout_constraint"}


def digest(*parts: Any) -> str:
    """A hash of strings and tuples of strings."""
    return blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def array_key(x: Any) -> tuple:
    """An array by its content."""
    if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        return str(x.dtype), *array_key(jax.random.key_data(x))
    x = np.asarray(x)
    return "array", str(x.dtype), x.shape, blake2b(np.ascontiguousarray(x).tobytes(), digest_size=16).hexdigest()


def aval_key(aval: Any) -> tuple:
    """A type of an array, or of a reference to one."""
    if isinstance(aval, core.ShapedArray):
        sharding, varying = str(getattr(aval.sharding, "spec", aval.sharding)), str(getattr(aval, "vma", ""))
        return "aval", aval.shape, str(aval.dtype), aval.weak_type, sharding, varying, str(aval.memory_space)
    if hasattr(aval, "inner_aval"):
        return type(aval).__name__, aval_key(aval.inner_aval), str(getattr(aval, "memory_space", None))
    if isinstance(aval, core.AbstractToken):
        return ("token",)
    raise Unknown(f"a value of type {type(aval).__name__}")


class Canonical:
    """Digests of jaxprs; each is made once."""

    def __init__(self) -> None:
        self.known: dict[tuple, tuple[Any, str]] = {}
        self.open: set[int] = set()

    def program(self, closed: Any, names_in: Sequence[str], names_out: Sequence[str]) -> str:
        """A whole program: what goes in and comes out by name, whatever its order."""
        jaxpr = closed.jaxpr
        inputs = [digest("in", name, aval_key(v.aval)) for name, v in zip(names_in, jaxpr.invars, strict=True)]
        outputs, rest = self._run(jaxpr, [self.constant(c) for c in closed.consts], inputs)
        return digest(sorted(zip(names_out, outputs, strict=True)), rest)

    def jaxpr(self, jaxpr: Any, consts: Iterable[Any] = ()) -> str:
        """A part of a program: its inputs by their position."""
        constants = [self.constant(c) for c in consts]
        place = id(jaxpr), *constants
        if place not in self.known:
            inputs = [digest("in", number, aval_key(v.aval)) for number, v in enumerate(jaxpr.invars)]
            missing = range(len(constants), len(jaxpr.constvars))
            constants += [digest("const", number, aval_key(jaxpr.constvars[number].aval)) for number in missing]
            # the jaxpr is kept, so that no other gets its id
            self.known[place] = jaxpr, digest(*self._run(jaxpr, constants, inputs))
        return self.known[place][1]

    def constant(self, value: Any) -> str:
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            weak = bool(getattr(getattr(value, "aval", None), "weak_type", False))
            return digest("constant", array_key(value), weak)
        return digest("constant", self.key(value))

    def _run(self, jaxpr: Any, constants: list[str], inputs: list[str]) -> tuple[list[str], tuple]:
        """The hashes of the outputs; the order of effects, and how many equations count."""
        live = live_equations(jaxpr)
        values: dict[Any, str] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *inputs], strict=True))

        def read(atom: Any) -> str:
            if isinstance(atom, core.Literal):
                return digest("literal", aval_key(atom.aval), array_key(np.asarray(atom.val)))
            return values[atom]

        effects, counts = "", Counter[str]()
        for equation in live:
            name = equation.primitive.name
            dropped = NAMES.get(name, set())
            params = sorted((k, self.key(v)) for k, v in equation.params.items() if k not in dropped)
            read_by = [read(atom) for atom in equation.invars]
            if name == "add_any":  # two gradients, which JAX adds in the order of the lines that have them
                read_by.sort()
            context = str(equation.ctx.compute_type), str(equation.ctx.xla_metadata)
            found = digest(name, params, read_by, context, effects if equation.effects else "")
            if equation.effects:
                effects = digest(found, sorted(type(effect).__name__ for effect in equation.effects))
            counts[found] += 1
            for number, v in enumerate(equation.outvars):
                values[v] = digest(found, number, aval_key(v.aval))
        twice = sorted((found, count) for found, count in counts.items() if count > 1)
        return [read(atom) for atom in jaxpr.outvars], (effects, len(live), twice)

    def key(self, value: Any) -> Any:
        """What a parameter means, as strings and tuples."""
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            return type(value).__name__, repr(value)
        if isinstance(value, core.ClosedJaxpr):
            return "jaxpr", self.jaxpr(value.jaxpr, value.consts)
        if isinstance(value, core.Jaxpr):
            return "jaxpr", self.jaxpr(value)
        if isinstance(value, (core.ShapedArray, core.AbstractToken)) or hasattr(value, "inner_aval"):
            return aval_key(value)
        if isinstance(value, np.dtype):
            return "dtype", str(value)
        if isinstance(value, (np.ndarray, np.generic)) or (hasattr(value, "dtype") and hasattr(value, "shape")):
            return array_key(value)
        if isinstance(value, enum.Enum):
            return type(value).__name__, value.name
        if isinstance(value, type):
            return "type", value.__module__, value.__qualname__
        return self._compound(value)

    def _compound(self, value: Any) -> Any:
        name = type(value).__name__
        if isinstance(value, jax.sharding.PartitionSpec):
            return name, str(value), str(value.unreduced), str(value.reduced)
        if isinstance(value, (tuple, list)):
            return name, tuple(self.key(item) for item in value)
        if isinstance(value, (set, frozenset)):
            return name, tuple(sorted(map(repr, map(self.key, value))))
        if isinstance(value, dict) or name == "FrozenDict":
            return "dict", tuple(sorted((repr(self.key(k)), self.key(v)) for k, v in dict(value).items()))
        if isinstance(value, jax.sharding.NamedSharding):
            return name, self.key(value.mesh), self.key(value.spec), str(value.memory_kind)
        if isinstance(value, (mesh.Mesh, mesh.AbstractMesh)):  # a mesh by its axes: its devices are those that are here
            return "mesh", tuple(value.shape.items()), str(value.axis_types)
        if isinstance(value, named_sharding.UnspecifiedValue):
            return (name,)
        if isinstance(value, jax.tree_util.PyTreeDef):
            return name, str(value)
        if isinstance(value, functools.partial):
            return name, self.key(value.func), self.key(value.args), self.key(value.keywords)
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, (slicing.GatherDimensionNumbers, slicing.ScatterDimensionNumbers)):
            return name, repr(value)
        if dataclasses.is_dataclass(value):
            fields = [f.name for f in dataclasses.fields(value)]
            return name, tuple((f, self.key(getattr(value, f))) for f in fields if f not in FIELDS_OF_PEOPLE)
        if name in ("RaggedDotDimensionNumbers", "PRNGImpl", "Layout"):
            return name, repr(value)
        raise Unknown(f"a parameter of type {type(value).__module__}.{type(value).__qualname__}")

    def _function(self, value: Any) -> Any:
        """A function, such as a policy of rematerialisation: its code, and what it holds."""
        if id(value) in self.open:
            return "function", value.__qualname__
        self.open.add(id(value))
        try:
            cells = tuple(self.key(cell.cell_contents) for cell in value.__closure__ or ())
            defaults = self.key(value.__defaults__), self.key(value.__kwdefaults__)
            module = value.__module__.partition(".")
            used = () if module[0] == "jax" else sorted(value.__code__.co_names)
            globals_ = {name: value.__globals__[name] for name in used if name in value.__globals__}
            held = {name: self.key(x) for name, x in globals_.items() if not isinstance(x, types.ModuleType)}
            return "function", module[2], repr(code_key(value.__code__)), cells, defaults, sorted(held.items())
        finally:
            self.open.discard(id(value))


def live_equations(jaxpr: Any) -> list[Any]:
    """The equations that an output or an effect needs, in their order."""
    needed = {v for v in jaxpr.outvars if not isinstance(v, core.Literal)}
    live = []
    for equation in reversed(jaxpr.eqns):
        if equation.effects or not needed.isdisjoint(equation.outvars):
            live.append(equation)
            needed.update(v for v in equation.invars if not isinstance(v, core.Literal))
    return live[::-1]


def places(jaxpr: Any, canonical: Canonical) -> Counter[str]:
    """Where a program says how arrays lie on devices, and what goes between these."""
    found: Counter[str] = Counter()
    for equation in live_equations(jaxpr):
        if equation.primitive.name in PLACES:
            params = {k: v for k, v in equation.params.items() if k != "jaxpr"}
            shapes = [aval_key(v.aval) for v in equation.invars]
            found[f"{equation.primitive.name} {canonical.key(params)} {shapes}"] += 1
        for inner in core.jaxprs_in_params(equation.params):
            found += places(inner, canonical)
    return found
