"""Traces the programs of a package, and writes facts about them as JSON.

`python -m generator.programs.trace FOLDER NAME` is a process of its own: the folder has one version of the package, so
that two versions never meet. A failure is a fact too: {"undecided": reason}.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import inspect
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np

from generator.programs.canonical import JaxprHasher
from generator.programs.recording import instrument, recorded, without_recording
from generator.programs.verdicts import DECODING, EVALUATION, INITIAL, MESH, SCRATCH, TRAINING

MODULES = "config", "parallel", "data", "model", "step", "engine"
LENGTH = 256  # tokens of the longest text that is decoded
ROWS = 8  # sequences of an engine
# steps of an engine: tokens of each sequence, whether all are scored, how many of them are drafts, int8 pages
STEPS = {
    "prefill": (32, False, 0, False),
    "prefill, each scored": (32, True, 0, False),
    "decode": (1, False, 0, False),
    "decode, draft tokens verified": (3, True, 2, False),
    "decode, int8": (1, False, 0, True),
}
MESHES = (2, 2, 2), (2, 4, 1), (1, 8, 1)


def attempt(job: Callable[[], Any]) -> Any:
    """Returns the result of a job, or {"undecided": reason} if it failed."""
    try:
        return job()
    except Exception as error:  # the code of a package may raise anything
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if SCRATCH in frame.filename]
        place = f" ({Path(frames[-1].filename).name}: {frames[-1].name})" if frames else ""
        return {"undecided": f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}{place}"}


class Program(NamedTuple):
    """A part of an entry point: a function, and its arguments, trees of abstract arrays."""

    entry: str
    part: str
    function: Callable
    arguments: dict[str, Any]


def import_package(name: str) -> SimpleNamespace:
    """Imports the modules that have entry points; a package that does not serve has no engine."""
    with without_recording():
        files = {module: module for module in MODULES if importlib.util.find_spec(f"{name}.{module}")}
        files.setdefault("config", "config")  # which tells why there is none
        for older in "trainer", "train":  # the file of the loop, which once had the steps
            if importlib.util.find_spec(f"{name}.{older}"):
                files.setdefault("step", older)
        return SimpleNamespace(**{module: importlib.import_module(f"{name}.{file}") for module, file in files.items()})


def config_variants(package: SimpleNamespace) -> dict[str, Any]:
    """Returns the settings that programs are traced with: name -> Config.

    They are the tiny preset, the same in fp32 with all settings switched on, in bf16, and the largest preset.
    """
    presets = package.config.PRESETS
    tiny = presets["tiny"]
    with without_recording():
        sizes = {
            name: sum(x.size for x in jax.tree.leaves(_abstract_model(package, preset)))
            for name, preset in presets.items()
        }
        largest = max(sizes, key=lambda name: sizes[name])
        changes = {"dtype": "float32", "accumulation": 2, "remat": "full", "logits_per_chunk": 100 * tiny.vocab_size}
        # shares of these steps are not whole, and the seed is not the default
        changes |= {"moments_dtype": "bfloat16", "steps": 1237, "seed": 1237}
        switched = dataclasses.replace(tiny, **{name: x for name, x in changes.items() if hasattr(tiny, name)})
        result = {"tiny": tiny, "tiny, float32, all switched on": _with_other_numbers(package, switched)}
    if tiny.dtype == "float32":
        result["tiny, bfloat16"] = dataclasses.replace(tiny, dtype="bfloat16")
    return result | ({largest: presets[largest]} if largest != "tiny" else {})


def _with_other_numbers(package: SimpleNamespace, config: Any) -> Any:
    """Returns settings in which each float differs from its default, and none is 0, which switches a feature off."""
    floats = {name: value for name, value in vars(config).items() if isinstance(value, float)}
    shares = {name: int.from_bytes(sha256(name.encode()).digest()[:4], "big") / 2**32 for name in floats}
    others = {name: value * (0.9 + 0.09 * shares[name]) if value else 0.01 for name, value in floats.items()}

    def works(**changes: float) -> bool:
        tokens, other = np.zeros((1, 8), np.int32), _abstract_model(package, dataclasses.replace(config, **changes))
        return "undecided" not in attempt(lambda: {"logits": jax.eval_shape(lambda model: model(tokens), other)})

    # a number that determines sizes stays
    valid = others if works(**others) else {name: x for name, x in others.items() if works(**{name: x})}
    return dataclasses.replace(config, **valid)


def _abstract_model(package: SimpleNamespace, config: Any) -> Any:
    from flax import nnx

    return package.parallel.abstract(lambda: package.model.Decoder(config, nnx.Rngs(0)), None)


def list_programs(package: SimpleNamespace, config: Any, mesh: Any = None) -> Iterator[Program]:
    """Yields the programs of one Config; on a mesh of several devices, only training and evaluation."""
    state = package.parallel.abstract(lambda: package.step.new_state(config), mesh)
    with without_recording():
        one_device = package.parallel.make_mesh(1, 1, 1, jax.devices()[:1])
    batch = package.data.abstract_batch(config, mesh or one_device)
    if mesh is None:
        batch = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in batch.items()}
    training, evaluation = (_with_config(package.step, name, config) for name in ("train_step", "eval_step"))
    yield Program(TRAINING, "step", training, {"state": state, "batch": batch})
    yield Program(EVALUATION, "loss", evaluation, {"model": state.model, "batch": batch})
    if mesh is None:
        arguments = {"model": state.model, "tokens": batch["tokens"]}
        yield Program(EVALUATION, "logits", lambda model, tokens: model(tokens), arguments)
        yield Program(INITIAL, "state", lambda: package.step.new_state(config), {})
        settings = getattr(getattr(package, "engine", None), "EngineSettings", None)
        for part, step in STEPS.items() if settings else ():
            if not step[-1] or hasattr(settings, "int8_kv_cache"):
                yield Program(DECODING, part, *_engine_step(package, config, state.model, *step))


def _with_config(module: Any, name: str, config: Any) -> Callable:
    """Returns a step of some config; that of an older package reads it from its model."""
    step = getattr(module, name)
    return functools.partial(step, config=config) if "config" in inspect.signature(step).parameters else step


def _engine_step(
    package: SimpleNamespace, config: Any, model: Any, tokens: int, score_all: bool, drafts: int, int8: bool
) -> tuple[Callable, dict[str, Any]]:
    """Returns a function of arrays that runs a step of an engine, and its abstract arguments.

    It returns the step's output and the arrays that it leaves on the device. The engine, and the construction of its
    device, are host code and in no program.
    """
    settings = {"max_sequences": ROWS, "max_length": min(LENGTH, config.context_length), "chunk": 64}
    sizes = package.engine.EngineSettings(**settings, **({"int8_kv_cache": True} if int8 else {}))
    device_class, calls = package.engine.Device, []  # type: Any, list[tuple]

    def make_device(*arguments: Any) -> Any:
        calls.append(arguments)
        return device_class(*arguments)

    engines = []

    def make_engine(model: Any) -> None:
        engines.append(package.engine.Engine(config, model, set(), sizes))

    with mock.patch.object(package.engine, "Device", make_device), without_recording():
        jax.eval_shape(make_engine, model)
        empty = engines[0].device
        shapes = getattr(empty, "shapes", empty)  # of an older package, which has them in its device
        make_step = empty.dummy_step if hasattr(empty, "dummy_step") else empty.nothing
        step = make_step(ROWS, shapes.widths[-1])
    if drafts:
        step = step._replace(draft_tokens=np.zeros((ROWS, drafts), np.int32))
    ((_, _, *rest),) = calls

    def function(model: Any, arrays: dict[str, Any], step: Any) -> Any:
        with without_recording():
            device = device_class(config, model, *rest)
        for name, array in arrays.items():
            setattr(device, name, array)
        output = device.run(step, tokens, score_all)
        return output, {name: getattr(device, name) for name in arrays}

    names = ("state", "slots") if hasattr(empty, "state") else ("key", "value", "slots")  # of an older package
    arrays = {name: getattr(empty, name) for name in names}
    shaped = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype), (arrays, step))
    return function, {"model": model, "arrays": shaped[0], "step": shaped[1]}


def _mesh_of_eight(package: SimpleNamespace, config: Any) -> Any:
    """Returns a mesh of 8 devices over which the arrays of a Config divide."""
    for sizes in MESHES:
        with without_recording():
            mesh = package.parallel.make_mesh(*sizes)
        try:
            package.parallel.abstract(lambda: package.step.new_state(config), mesh)
            package.data.abstract_batch(config, mesh)
            return mesh
        except package.data.InputError as error:
            problem = error
    raise problem


def trace_package(name: str) -> dict[str, Any]:
    """Returns the facts of a package: entry point -> variant and part -> those of one program."""
    package, facts = import_package(name), dict[str, Any]()
    configs = config_variants(package)
    mesh = _mesh_of_eight(package, configs["tiny"])
    for variant, config, on in [*((key, each, None) for key, each in configs.items()), (MESH, configs["tiny"], mesh)]:
        hasher = JaxprHasher()
        with nullcontext() if on is None else jax.set_mesh(on):
            for program in list_programs(package, config, mesh=on):
                of_entry = facts.setdefault(program.entry, {})
                of_entry[f"{variant}: {program.part}"] = attempt(lambda: _trace_program(hasher, program))  # noqa: B023
    return {"programs": facts}


def _trace_program(hasher: JaxprHasher, program: Program) -> dict[str, Any]:
    """Returns the hash of a program and the arrays that it takes; of the initial parameters, those that it makes."""
    arguments = program.arguments
    jaxpr, out = jax.make_jaxpr(program.function, return_shape=True)(*arguments.values())
    takes = _describe_arrays(arguments or {"state": out})
    names = [*_describe_arrays(arguments)], [*_describe_arrays(out)]
    return {"digest": hasher.program(jaxpr, *names), "takes": takes}


def _describe_arrays(tree: Any) -> dict[str, str]:
    """Returns path -> dtype, shape and layout of each array in a tree."""
    arrays = {jax.tree_util.keystr(path): x for path, x in jax.tree_util.tree_leaves_with_path(tree)}
    specs = {name: getattr(getattr(x, "sharding", None), "spec", "") for name, x in arrays.items()}
    return {name: f"{x.dtype}{[*x.shape]} {specs[name]}".strip() for name, x in arrays.items()}


def main(folder: str, name: str) -> None:
    """Writes facts.json into the folder."""
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    places = attempt(lambda: instrument(Path(folder, name)))
    facts = places if "undecided" in places else attempt(lambda: trace_package(name))
    facts["traced"] = sorted(key for key, needed in places.items() if needed <= recorded)
    Path(folder, "facts.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main(*sys.argv[1:])
