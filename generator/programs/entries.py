"""The programs of a package: each entry point with the arguments that it is traced or run with.

Runs in a process that traces.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Callable, Iterator
from hashlib import sha256
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np

from generator.programs.noting import unnoted
from generator.programs.verdicts import DECODING, EVALUATION, INITIAL, TRAINING

MODULES = ("config", "parallel", "data", "model", "train", "engine", "huggingface")
ROWS = 8  # sequences of an engine
STEPS = {  # of an engine: tokens of each sequence, whether all are scored, how many of them are drafts
    "prefill": (32, False, 0),
    "prefill, each scored": (32, True, 0),
    "decode": (1, False, 0),
    "decode, draft tokens verified": (3, True, 2),
}
MESHES = (2, 2, 2), (2, 4, 1), (1, 8, 1)


class Program(NamedTuple):
    """A part of an entry point: a function of arrays, and (abstract) arrays for it, by name."""

    entry: str
    part: str
    function: Callable
    arguments: dict[str, Any]


def load(name: str) -> SimpleNamespace:
    """The modules that have the entry points."""
    return SimpleNamespace(**{module: importlib.import_module(f"{name}.{module}") for module in MODULES})


def variants(package: SimpleNamespace) -> dict[str, Any]:
    """The settings that programs are traced with: name -> Config.

    The tiny preset; the same in fp32 with what settings switch on; in bf16; and the preset with the most parameters.
    """
    presets = package.config.PRESETS
    tiny = presets["tiny"]
    sizes = {name: sum(x.size for x in jax.tree.leaves(_model(package, config))) for name, config in presets.items()}
    largest = max(sizes, key=lambda name: sizes[name])
    wanted = {"dtype": "float32", "accumulation": 2, "remat": "full", "logits_per_chunk": 100 * tiny.vocab_size}
    # steps of which a share is no whole number, and a seed that is no default
    wanted |= {"moments_dtype": "bfloat16", "steps": 1237, "seed": 1237}
    fields = {field.name: getattr(tiny, field.name) for field in dataclasses.fields(tiny)}
    switched = dataclasses.replace(tiny, **{name: value for name, value in wanted.items() if name in fields})
    found = {"tiny": tiny, "tiny, float32, all switched on": _with_other_numbers(package, switched)}
    if tiny.dtype == "float32":
        found["tiny, bfloat16"] = dataclasses.replace(tiny, dtype="bfloat16")
    return found | ({largest: presets[largest]} if largest != "tiny" else {})


def _with_other_numbers(package: SimpleNamespace, config: Any) -> Any:
    """Each setting that is no whole number with a value of its own, so that none is taken for its default; 0 is off."""
    fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    floats = {name: value for name, value in fields.items() if isinstance(value, float)}
    shares = {name: int.from_bytes(sha256(name.encode()).digest()[:4], "big") / 2**32 for name in floats}
    others = {name: value * (0.9 + 0.09 * shares[name]) if value else 0.01 for name, value in floats.items()}

    def works(**changes: float) -> bool:
        other = dataclasses.replace(config, **changes)
        try:
            jax.eval_shape(lambda model: model(np.zeros((1, 8), np.int32)), _model(package, other))
        except Exception:  # a number that sizes follow from
            return False
        return True

    with unnoted():
        fit = others if works(**others) else {name: x for name, x in others.items() if works(**{name: x})}
    return dataclasses.replace(config, **fit)


def _model(package: SimpleNamespace, config: Any) -> Any:
    from flax import nnx

    return package.parallel.abstract(lambda: package.model.Decoder(config, nnx.Rngs(0)), None)


def programs(package: SimpleNamespace, config: Any, length: int) -> Iterator[Program]:
    """All of them for one Config.

    Args:
        length: of the longest text that is decoded.
    """
    state = package.parallel.abstract(lambda: package.train.new_state(config), None)
    batch = package.data.abstract_batch(config, _mesh(package, 1, 1, 1, jax.devices()[:1]))
    batch = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in batch.items()}
    yield Program(TRAINING, "step", package.train.train_step, {"state": state, "batch": batch})
    yield Program(EVALUATION, "loss", package.train.eval_step, {"model": state.model, "batch": batch})
    yield Program(
        EVALUATION, "logits", lambda model, tokens: model(tokens), {"model": state.model, "tokens": batch["tokens"]}
    )
    for part, shape in STEPS.items():
        yield Program(DECODING, part, *_engine_step(package, config, state.model, length, *shape))
    yield Program(INITIAL, "state", lambda: package.train.new_state(config), {})


def _engine_step(
    package: SimpleNamespace, config: Any, model: Any, length: int, tokens: int, whole: bool, draft_tokens: int
) -> tuple:
    """What a step of an engine gives, and leaves on its device, as a function of arrays."""
    device, empty = _device(package, config, length)

    def function(model: Any, arrays: dict[str, Any], step: Any) -> Any:
        on = device(model)
        on.key, on.value, on.slots = arrays["key"], arrays["value"], arrays["slots"]
        output = on.run(step, tokens, whole)
        return output, {"key": on.key, "value": on.value, "slots": on.slots}

    arrays = {"key": empty.key, "value": empty.value, "slots": empty.slots}
    with unnoted():
        step = empty.nothing(ROWS, empty.widths[-1])
        if draft_tokens:
            step = step._replace(draft_tokens=np.zeros((ROWS, draft_tokens), np.int32))
    shaped = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype), (arrays, step))
    return function, {"model": model, "arrays": shaped[0], "step": shaped[1]}


def _device(package: SimpleNamespace, config: Any, length: int) -> tuple[Callable, Any]:
    """What makes the device of an engine for a model, as the engine does; and one without weights.

    The engine itself is on the host: what it keeps beside its device is in no program.
    """
    sizes = package.engine.EngineSettings(max_sequences=ROWS, max_length=min(length, config.context_length), chunk=64)
    real, given = package.engine.Device, []  # type: Any, list[tuple]

    def kept(*arguments: Any) -> Any:
        given.append(arguments)
        return real(*arguments)

    with mock.patch.object(package.engine, "Device", kept), unnoted():
        empty = package.engine.Engine(config, None, set(), sizes).device
    ((_, _, *rest),) = given
    return lambda model: real(config, model, *rest), empty


def device_numbers(package: SimpleNamespace, config: Any, length: int) -> dict[str, str]:
    """What the device of an engine says of the steps that it takes, by name: no array shows it."""
    found = {}
    for name, value in vars(_device(package, config, length)[1]).items():
        try:
            found[name] = json.dumps(value)
        except TypeError:
            continue  # arrays, settings, a mesh
    return found


def _mesh(package: SimpleNamespace, *arguments: Any) -> Any:
    """A mesh: which devices it has where is in no program."""
    with unnoted():
        return package.parallel.make_mesh(*arguments)


def on_devices(package: SimpleNamespace, config: Any) -> tuple[tuple, dict[str, str], dict[str, Any]]:
    """The programs on a mesh of 8 devices: its sizes, how arrays lie on it, the jaxprs."""
    for sizes in MESHES:
        mesh = _mesh(package, *sizes)
        try:
            state = package.parallel.abstract(lambda: package.train.new_state(config), mesh)
            batch = package.data.abstract_batch(config, mesh)
            break
        except package.data.InputError as error:
            problem = error
    else:
        raise problem
    named = package.parallel.named_arrays({"state": state, "batch": batch})
    layout = {name: str(x.sharding.spec) for name, x in named.items()}
    with jax.set_mesh(mesh):
        evaluation = jax.make_jaxpr(package.train.eval_step)(state.model, batch)
        return sizes, layout, {TRAINING: _compiled(package, state, batch), EVALUATION: evaluation}


class _Jitted:
    """Stands for jax.jit where a package lowers and compiles: keeps what would be compiled."""

    def __init__(self, function: Callable, **options: Any):
        self.function, self.options = function, options
        self.jaxpr: Any = None

    def lower(self, *arguments: Any) -> _Jitted:
        self.jaxpr = jax.make_jaxpr(jax.jit(self.function, **self.options))(*arguments)
        return self

    def compile(self) -> _Jitted:
        return self


class _Jax:
    """The module jax, except `jit`."""

    jit = _Jitted

    def __getattr__(self, name: str) -> Any:
        return getattr(jax, name)


def _compiled(package: SimpleNamespace, state: Any, batch: Any) -> Any:
    """What `compile_step` would compile: its donated arguments and its layouts too."""
    with mock.patch.object(package.train, "jax", _Jax()):
        return package.train.compile_step(state, batch).jaxpr
