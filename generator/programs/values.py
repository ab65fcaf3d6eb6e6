"""Runs programs of a package on numbers that follow from the names of its arrays, and saves what they give.

`python -m generator.programs.values FOLDER NAME REQUEST`, a process of its own. Both versions of a package get the same
numbers for arrays of the same names, so what they give can be compared.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from generator.programs import entries
from generator.programs.guard import guarded
from generator.programs.verdicts import TRAINING

LENGTH = 256  # of a sequence that is trained on
DECODED = 320  # of the longest text that is decoded
EARLY = 7  # steps done: where a rate still rises, and a mean is corrected for the few steps that it is of
DRAWS = "top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"
LATE = 0.95  # share of the steps done: where a rate falls


def main(folder: str, name: str, request: str) -> None:
    sys.path.insert(0, folder)
    asked, facts = json.loads(request), {}
    arrays: dict[str, np.ndarray] = {}
    package = entries.load(name)
    for variant, config in entries.variants(package).items():
        for entry in asked.get(variant, []):
            found = guarded(lambda: run(package, config, entry))  # noqa: B023
            if "undecided" in found:
                facts[f"{variant}/{entry}"] = found["undecided"]
            else:
                arrays |= {f"{variant}/{entry}/{path}": x for path, x in found.items()}
    with open(Path(folder, f"{name}.npz"), "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    Path(folder, f"{name}.undecided.json").write_text(json.dumps(facts))


def run(package: SimpleNamespace, config: Any, entry: str) -> dict[str, np.ndarray]:
    """What an entry point gives, by names."""
    config = small(package, config)
    result: dict[str, np.ndarray] = {}
    with jax.default_matmul_precision("highest"):
        for program in entries.programs(package, config, DECODED):
            if program.entry != entry:
                continue
            function, filled = jax.jit(program.function), functools.partial(fill_all, program, config)
            arguments = filled(EARLY)
            result |= named(program.part, function(*arguments.values()))
            if program.part == "decode":
                for setting in DRAWS:  # by itself, as one that is left out may hide behind others
                    arguments["step"] = step_input(program.arguments["step"], program.part, setting)
                    result |= named(f"decode with {setting} alone", function(*arguments.values())[0])
            if entry == TRAINING:
                nothing = arguments["batch"] | {"weights": np.zeros_like(arguments["batch"]["weights"])}
                result |= named("step of no targets", function(arguments["state"], nothing))
                result |= named(
                    f"{program.part} later", function(*filled(int(LATE * getattr(config, "steps", 1000))).values())
                )
                model, batch = arguments["state"].model, arguments["batch"]
                gradient = jax.value_and_grad(lambda m, b: package.train.loss(m, b, config), has_aux=True)
                (loss, _), gradients = jax.jit(gradient)(model, batch)
                result |= named("loss", loss) | named("gradients", gradients)
    return result


def small(package: SimpleNamespace, config: Any) -> Any:
    """Settings that take less time, and lose nothing: few rows, no more layers than the kinds of layers need."""
    fields = {field.name for field in dataclasses.fields(config)}
    wanted = {"batch_size": 2 * config.accumulation, "sequence_length": min(LENGTH, config.sequence_length)}
    # what a step changes is not to be lost in what is changed, nor in the rounding of moments
    wanted |= {"learning_rate": 1000 * config.learning_rate, "moments_dtype": "float32"}
    config = dataclasses.replace(config, **{name: value for name, value in wanted.items() if name in fields})
    for layers in range(2, config.layers):
        fewer = dataclasses.replace(config, layers=layers)
        try:
            jax.eval_shape(lambda: package.train.new_state(fewer))  # noqa: B023
        except Exception:  # layers would be left over
            continue
        return fewer
    return config


def named(part: str, tree: Any) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {f"{part}{jax.tree_util.keystr(path)}": as_numpy(x) for path, x in leaves}


def as_numpy(x: Any) -> np.ndarray:
    x = np.asarray(x)
    return x if x.dtype.kind in "biuf" else x.astype(np.float32)  # bfloat16 is of no kind that numpy saves


def fill_all(program: entries.Program, config: Any, done: int) -> dict[str, Any]:
    """The arrays of all arguments, after so many steps."""
    return {name: fill(name, value, config, program.part, done) for name, value in program.arguments.items()}


def fill(name: str, tree: Any, config: Any, part: str, done: int) -> Any:
    """The arrays of an argument."""
    if name == "step":
        return step_input(tree, part)
    return jax.tree_util.tree_map_with_path(
        lambda path, x: numbers(f"{name}{jax.tree_util.keystr(path)}", x, config, done), tree
    )


def numbers(path: str, x: Any, config: Any, done: int) -> Any:
    """An array by its name."""
    random = np.random.default_rng(int.from_bytes(sha256(path.encode()).digest()[:8], "big"))
    if "tokens" in path or "targets" in path or "sequences" in path:
        return random.integers(0, config.vocab_size, x.shape).astype(x.dtype)
    if "segment_ids" in path or "positions" in path:  # two documents in each row, of which the first is longer
        place, first = np.arange(x.shape[-1]), x.shape[-1] * 3 // 4
        value = 1 + (place >= first) if "segment_ids" in path else np.where(place >= first, place - first, place)
        if "positions" in path and config.context_length >= LENGTH + x.shape[-1]:
            value = value + LENGTH  # bf16 has no odd ones there
        return np.broadcast_to(value, x.shape).astype(x.dtype)
    if "weights" in path:
        return (random.random(x.shape) < 0.9).astype(x.dtype)
    if np.issubdtype(x.dtype, np.integer):  # counts of steps
        return np.full(x.shape, done, x.dtype)
    if x.dtype == bool:
        return np.zeros(x.shape, bool)
    if "opt_state" in path:  # means, of squares too
        return (1e-3 * (1 + np.abs(random.standard_normal(x.shape)))).astype(x.dtype)
    scale, offset = (
        (0.3, 1.0) if "norm" in path and "scale" in path else (1.0, 0.0) if "arrays" in path else (0.05, 0.0)
    )
    return (offset + scale * random.standard_normal(x.shape)).astype(x.dtype)


def draws_of(row: np.ndarray, only: str) -> dict[str, Any]:
    """How the tokens of rows are drawn: each in another way, or all by one setting alone."""
    off = {"top_k": 0, "top_p": 1, "min_p": 0, "presence_penalty": 0, "frequency_penalty": 0, "repetition_penalty": 1}
    if only:  # as strong as it can be: it leaves the likeliest token of many, or takes one that is there already
        strong = {"top_k": 1, "top_p": 0.001, "min_p": 0.999, "repetition_penalty": 0.05}
        drawn = off | {only: strong.get(only, -20), "temperature": 2 if only in ("top_k", "top_p", "min_p") else 0}
        return {name: x + 0 * row for name, x in drawn.items()}
    hot = row % 2 == 1  # the others take the likeliest token, which shows each penalty, one in a row
    return {
        "temperature": np.where(hot, 0.5 + 0.2 * row, 0),
        "top_k": np.where(hot, 5 * row, 0),
        "top_p": np.where(hot, 1 - 0.05 * row, 1),
        "min_p": np.where(hot, 0.01 * (row % 3), 0),
        # negative ones are for what is there already, and most for what is there most often
        "presence_penalty": np.where(row == 2, -20, 0.3 * hot),
        "frequency_penalty": np.where(row == 4, -20, 0.2 * hot),
        "repetition_penalty": np.where(row == 6, 20, 1 + 0.2 * hot),
    }


def step_input(step: Any, part: str, only: str = "") -> Any:
    """What an engine would be asked: texts with pages already, and the next token of each drawn in another way.

    Args:
        only: the one setting of draws, beside the temperature.
    """
    rows, width = step.block_tables.shape
    step = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), step)
    row = np.arange(rows)
    counts = {"decode": 1 + 0 * row, "decode, draft tokens verified": 3 - row % 2}.get(part, 32 - 3 * row).astype(
        np.int32
    )
    block_tables = 1 + np.arange(rows * width, dtype=np.int32).reshape(rows, width)
    draws: dict[str, Any] = draws_of(row, only) | {"prompt": 10 + row, "seed": 1 + row}
    fields = step.sampling._asdict()
    known = {name: np.asarray(x, fields[name].dtype) for name, x in draws.items() if name in fields}
    sampling = step.sampling._replace(**known)
    return step._replace(
        slots=row.astype(np.int32),
        starts=np.maximum(280 - 23 * row, 5).astype(np.int32),
        counts=counts,
        samples=np.ones(rows, bool),
        block_tables=block_tables,
        top=np.array(True),
        sampling=sampling,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
