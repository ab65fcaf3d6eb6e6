"""Traces the programs of a package, and writes their facts as JSON.

`python -m generator.programs.trace FOLDER NAME`, a process of its own: the folder holds one version of the package, so
that two versions never meet. What goes wrong is a fact too: {"undecided": reason}.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import importlib.util
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np

from generator.programs.canonical import Canonical
from generator.programs.sources import functions_of
from generator.programs.verdicts import DECODING, EVALUATION, INITIAL, MESH, SCRATCH, TRAINING

MODULES = "config", "parallel", "data", "model", "train", "engine"
LENGTH = 256  # of the longest text that is decoded
ROWS = 8  # sequences of an engine
STEPS = {  # of an engine: tokens of each sequence, whether all are scored, how many of them are drafts, int8 pages
    "prefill": (32, False, 0, False),
    "prefill, each scored": (32, True, 0, False),
    "decode": (1, False, 0, False),
    "decode, draft tokens verified": (3, True, 2, False),
    "decode, int8": (1, False, 0, True),
}
MESHES = (2, 2, 2), (2, 4, 1), (1, 8, 1)
ran: set[tuple[str, bool]] = set()  # what `record` was told
paused = False


def record(place: str, value: Any = True) -> Any:
    """Records that a place ran, or which way a test came out there."""
    if not paused:
        ran.add((place, bool(value)))
    return value


@contextmanager
def without_recording() -> Iterator[None]:
    """Records nothing, for what has to run before a program can be traced, and is in none."""
    global paused
    before, paused = paused, True
    try:
        yield
    finally:
        paused = before


class _Recorder(ast.NodeTransformer):
    """Puts a call of `record` before each statement of a function, and around each test.

    Attributes:
        places: what has to be recorded where all of the function runs.
    """

    def __init__(self, name: str):
        self.name = name
        self.places: set[tuple[str, bool]] = set()

    def _call(self, *test: ast.expr) -> ast.expr:
        place = f"{self.name}:{len(self.places)}"
        self.places |= {(place, True), (place, False)} if test else {(place, True)}
        return ast.Call(ast.Name("__record__", ast.Load()), [ast.Constant(place), *test], [])

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, name, [each for it in value for each in (ast.Expr(self._call()), it)])
            elif name in ("test", "guard") and value:
                setattr(node, name, self._call(value))
            elif name == "elt" or (name == "body" and isinstance(node, ast.Lambda)):
                setattr(node, name, ast.BoolOp(ast.And(), [self._call(), value]))
        if isinstance(node, ast.comprehension):
            node.ifs = [self._call(test) for test in node.ifs]
        elif isinstance(node, ast.BoolOp):
            node.values[:-1] = [self._call(test) for test in node.values[:-1]]
        elif isinstance(node, ast.Compare) and len(node.ops) > 1:
            return self._call(node)
        return node


def instrument(folder: Path) -> dict[str, set[tuple[str, bool]]]:
    """Rewrites the modules of a folder so that functions tell what of them runs: `path:function` -> its places."""
    builtins.__record__ = record  # type: ignore[attr-defined]
    found: dict[str, set[tuple[str, bool]]] = {}
    for path in folder.rglob("*.py"):
        tree = ast.parse(path.read_bytes())
        for name, function in functions_of(tree):
            key = f"{path.relative_to(folder).as_posix()}:{name}"
            noting = _Recorder(f"{key}:{function.lineno}")
            noting.visit(function)
            found.setdefault(key, set()).update(noting.places)
        path.write_text(ast.unparse(tree), encoding="utf-8")
    return found


def guarded(job: Callable[[], Any]) -> Any:
    """Returns the result of a job, or why it failed: {"undecided": reason}."""
    try:
        return job()
    except Exception as error:  # a package may do whatever it likes
        frames = [it for it in traceback.extract_tb(error.__traceback__) if SCRATCH in it.filename]
        place = f" ({Path(frames[-1].filename).name}: {frames[-1].name})" if frames else ""
        return {"undecided": f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}{place}"}


class Program(NamedTuple):
    """A part of an entry point: a function of (abstract) arrays, by name."""

    entry: str
    part: str
    function: Callable
    arguments: dict[str, Any]


def import_package(name: str) -> SimpleNamespace:
    """Imports the modules that have the entry points; a package that does not serve has no engine."""
    with without_recording():
        there = [module for module in MODULES if module != "engine" or importlib.util.find_spec(f"{name}.engine")]
        return SimpleNamespace(**{module: importlib.import_module(f"{name}.{module}") for module in there})


def variants(package: SimpleNamespace) -> dict[str, Any]:
    """Returns the settings that programs are traced with: name -> Config.

    The tiny preset; the same in fp32 with what settings switch on; in bf16; and the preset with the most parameters.
    """
    presets = package.config.PRESETS
    tiny = presets["tiny"]
    with without_recording():
        sizes = {name: sum(x.size for x in jax.tree.leaves(_model(package, it))) for name, it in presets.items()}
        largest = max(sizes, key=lambda name: sizes[name])
        changes = {"dtype": "float32", "accumulation": 2, "remat": "full", "logits_per_chunk": 100 * tiny.vocab_size}
        # steps of which a share is no whole number, and a seed that is no default
        changes |= {"moments_dtype": "bfloat16", "steps": 1237, "seed": 1237}
        switched = dataclasses.replace(tiny, **{name: x for name, x in changes.items() if hasattr(tiny, name)})
        found = {"tiny": tiny, "tiny, float32, all switched on": _with_other_numbers(package, switched)}
    if tiny.dtype == "float32":
        found["tiny, bfloat16"] = dataclasses.replace(tiny, dtype="bfloat16")
    return found | ({largest: presets[largest]} if largest != "tiny" else {})


def _with_other_numbers(package: SimpleNamespace, config: Any) -> Any:
    """Gives each float a value of its own, so that no setting is taken for its default; 0 is off."""
    floats = {name: value for name, value in vars(config).items() if isinstance(value, float)}
    shares = {name: int.from_bytes(sha256(name.encode()).digest()[:4], "big") / 2**32 for name in floats}
    others = {name: value * (0.9 + 0.09 * shares[name]) if value else 0.01 for name, value in floats.items()}

    def works(**changes: float) -> bool:
        tokens, other = np.zeros((1, 8), np.int32), _model(package, dataclasses.replace(config, **changes))
        return "undecided" not in guarded(lambda: {"logits": jax.eval_shape(lambda model: model(tokens), other)})

    # a number that sizes follow from stays
    fit = others if works(**others) else {name: x for name, x in others.items() if works(**{name: x})}
    return dataclasses.replace(config, **fit)


def _model(package: SimpleNamespace, config: Any) -> Any:
    from flax import nnx

    return package.parallel.abstract(lambda: package.model.Decoder(config, nnx.Rngs(0)), None)


def programs(package: SimpleNamespace, config: Any, mesh: Any = None) -> Iterator[Program]:
    """Yields all of them for one Config; on a mesh of several devices training and evaluation alone."""
    state = package.parallel.abstract(lambda: package.train.new_state(config), mesh)
    with without_recording():
        one = package.parallel.make_mesh(1, 1, 1, jax.devices()[:1])
    batch = package.data.abstract_batch(config, mesh or one)
    if mesh is None:
        batch = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in batch.items()}
    yield Program(TRAINING, "step", package.train.train_step, {"state": state, "batch": batch})
    yield Program(EVALUATION, "loss", package.train.eval_step, {"model": state.model, "batch": batch})
    if mesh is None:
        arguments = {"model": state.model, "tokens": batch["tokens"]}
        yield Program(EVALUATION, "logits", lambda model, tokens: model(tokens), arguments)
        yield Program(INITIAL, "state", lambda: package.train.new_state(config), {})
        settings = getattr(getattr(package, "engine", None), "EngineSettings", None)
        for part, step in STEPS.items() if settings else ():
            if not step[-1] or hasattr(settings, "int8_kv_cache"):
                yield Program(DECODING, part, *_engine_step(package, config, state.model, *step))


def _engine_step(
    package: SimpleNamespace, config: Any, model: Any, tokens: int, whole: bool, drafts: int, int8: bool
) -> tuple[Callable, dict[str, Any]]:
    """Returns a step of an engine, and what it leaves on its device, as a function of arrays; and the arrays.

    The engine itself, and how its device is made, is on the host: what they keep is in no program.
    """
    settings = {"max_sequences": ROWS, "max_length": min(LENGTH, config.context_length), "chunk": 64}
    sizes = package.engine.EngineSettings(**settings, **({"int8_kv_cache": True} if int8 else {}))
    real, calls = package.engine.Device, []  # type: Any, list[tuple]

    def kept(*arguments: Any) -> Any:
        calls.append(arguments)
        return real(*arguments)

    with mock.patch.object(package.engine, "Device", kept), without_recording():
        empty = package.engine.Engine(config, None, set(), sizes).device
        step = empty.nothing(ROWS, empty.widths[-1])
    if drafts:
        step = step._replace(draft_tokens=np.zeros((ROWS, drafts), np.int32))
    ((_, _, *rest),) = calls

    def function(model: Any, arrays: dict[str, Any], step: Any) -> Any:
        with without_recording():
            device = real(config, model, *rest)
        device.key, device.value, device.slots = arrays["key"], arrays["value"], arrays["slots"]
        output = device.run(step, tokens, whole)
        return output, {"key": device.key, "value": device.value, "slots": device.slots}

    arrays = {"key": empty.key, "value": empty.value, "slots": empty.slots}
    shaped = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype), (arrays, step))
    return function, {"model": model, "arrays": shaped[0], "step": shaped[1]}


def _eight_devices(package: SimpleNamespace, config: Any) -> Any:
    """Returns a mesh of 8 devices that the arrays of a Config divide over."""
    for sizes in MESHES:
        with without_recording():
            mesh = package.parallel.make_mesh(*sizes)
        try:
            package.parallel.abstract(lambda: package.train.new_state(config), mesh)
            package.data.abstract_batch(config, mesh)
            return mesh
        except package.data.InputError as error:
            problem = error
    raise problem


def trace(name: str) -> dict[str, Any]:
    """Returns the facts of one package."""
    package = import_package(name)
    configs, found = variants(package), dict[str, Any]()
    mesh = _eight_devices(package, configs["tiny"])
    for variant, config, on in [*((name, it, None) for name, it in configs.items()), (MESH, configs["tiny"], mesh)]:
        canonical = Canonical()
        with nullcontext() if on is None else jax.set_mesh(on):
            for program in programs(package, config, mesh=on):
                facts = found.setdefault(program.entry, {})
                facts[f"{variant}: {program.part}"] = guarded(lambda: _fact(canonical, program))  # noqa: B023
    return {"programs": found}


def _fact(canonical: Canonical, program: Program) -> dict[str, Any]:
    """Returns the digest of a program and the arrays that it takes; of the initial parameters those that it makes."""
    arguments = program.arguments
    jaxpr, out = jax.make_jaxpr(program.function, return_shape=True)(*arguments.values())
    takes = _leaves(arguments or {"state": out})
    return {"digest": canonical.program(jaxpr, [*_leaves(arguments)], [*_leaves(out)]), "takes": takes}


def _leaves(tree: Any) -> dict[str, str]:
    """Returns the shape, dtype and layout of each array of a tree by its path."""
    named = {jax.tree_util.keystr(path): x for path, x in jax.tree_util.tree_leaves_with_path(tree)}
    spec = {name: getattr(getattr(x, "sharding", None), "spec", "") for name, x in named.items()}
    return {name: f"{x.dtype}{[*x.shape]} {spec[name]}".strip() for name, x in named.items()}


def main(folder: str, name: str) -> None:
    """Writes facts.json into the folder."""
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    places = guarded(lambda: instrument(Path(folder, name)))
    facts = places if "undecided" in places else guarded(lambda: trace(name))
    facts["traced"] = sorted(key for key, needed in places.items() if needed <= ran)
    Path(folder, "facts.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main(*sys.argv[1:])
