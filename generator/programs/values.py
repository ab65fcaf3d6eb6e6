"""Runs programs of a package on random numbers that depend on the names of arrays, and saves the results.

`python -m generator.programs.values FOLDER NAME REQUEST` is a process of its own. In both versions of a package, arrays
of the same name get the same numbers, so that results can be compared.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from generator.programs.trace import config_variants, import_package, list_programs
from generator.programs.verdicts import TRAINING

LENGTH = 256  # of a sequence
EARLY = 7  # steps done: the rate still rises, and moments are corrected for their bias
LATE = 0.95  # share of the steps done: the rate falls


def main(folder: str, name: str, request: str) -> None:
    """Writes values.npz into the folder.

    Args:
        request: JSON, entry point -> variants; one of each dtype is run, and all in fp32.
    """
    sys.path.insert(0, folder)
    package, arrays = import_package(name), dict[str, np.ndarray]()
    configs = config_variants(package)
    for entry, variants in json.loads(request).items():
        first = {configs[name].dtype: name for name in reversed(variants)}
        for variant in [name for name in variants if configs[name].dtype == "float32" or name in first.values()]:
            for path, x in _run(package, _reduce(configs[variant]), entry).items():
                # numpy has no bfloat16 to save
                arrays[f"{entry}/{path} ({variant})"] = x if x.dtype.kind in "biuf" else x.astype(np.float32)
    with open(Path(folder, "values.npz"), "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _reduce(config: Any) -> Any:
    """Returns settings that take less time: a few short rows, whose steps change numbers more than rounding does."""
    changes = {"batch_size": 2 * config.accumulation, "sequence_length": min(LENGTH, config.sequence_length)}
    changes |= {"learning_rate": 1000 * config.learning_rate, "moments_dtype": "float32"}
    return dataclasses.replace(config, **{name: x for name, x in changes.items() if hasattr(config, name)})


def _run(package: SimpleNamespace, config: Any, entry: str) -> dict[str, np.ndarray]:
    """Returns the results of an entry point: name -> array."""
    result: dict[str, np.ndarray] = {}

    def add(part: str, tree: Any) -> None:
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        result.update({f"{part}{jax.tree_util.keystr(path)}": np.asarray(x) for path, x in leaves})

    with jax.default_matmul_precision("highest"):
        for program in list_programs(package, config):
            if program.entry != entry:
                continue
            function = jax.jit(program.function)
            arguments = {name: _fill_arrays(name, x, config, EARLY) for name, x in program.arguments.items()}
            add(program.part, function(*arguments.values()))
            if entry == TRAINING:
                model, batch = arguments["state"].model, arguments["batch"]
                gradient = jax.value_and_grad(lambda m, b: package.step.loss(m, b, config), has_aux=True)
                (loss, _), gradients = jax.jit(gradient)(model, batch)
                add("loss", loss)
                add("gradients", gradients)
                without_targets = batch | {"weights": np.zeros_like(batch["weights"])}
                add("step of no targets", function(arguments["state"], without_targets))
                done = int(LATE * getattr(config, "steps", 1000))
                late = _fill_arrays("state", program.arguments["state"], config, done)
                add("step later", function(late, batch))
    return result


def _fill_arrays(name: str, tree: Any, config: Any, done: int) -> Any:
    """Returns an argument with numbers in place of abstract arrays, after a number of steps."""
    return jax.tree_util.tree_map_with_path(
        lambda path, x: _fill_array(f"{name}{jax.tree_util.keystr(path)}", x, config, done), tree
    )


def _fill_array(path: str, x: Any, config: Any, done: int) -> Any:
    """Returns the numbers of an array that has a path, shape and dtype."""
    random = np.random.default_rng(int.from_bytes(sha256(path.encode()).digest()[:8], "big"))
    if "tokens" in path or "targets" in path:
        return random.integers(0, config.vocab_size, x.shape).astype(x.dtype)
    if "segment_ids" in path or "positions" in path:  # two documents in each row, the first one longer
        place, first = np.arange(x.shape[-1]), x.shape[-1] * 3 // 4
        value = 1 + (place >= first) if "segment_ids" in path else np.where(place >= first, place - first, place)
        if "positions" in path and config.context_length >= LENGTH + x.shape[-1]:
            value = value + LENGTH  # bf16 has no odd numbers there
        return np.broadcast_to(value, x.shape).astype(x.dtype)
    if "weights" in path:
        return (random.random(x.shape) < 0.9).astype(x.dtype)
    if np.issubdtype(x.dtype, np.integer):  # counts of steps
        return np.full(x.shape, done, x.dtype)
    if x.dtype == bool:
        return np.zeros(x.shape, bool)
    normal = random.standard_normal(x.shape)
    if "opt_state" in path:  # moments, the second ones included
        return (1e-3 * (1 + np.abs(normal))).astype(x.dtype)
    return (1 + 0.3 * normal if "norm" in path and "scale" in path else 0.05 * normal).astype(x.dtype)


if __name__ == "__main__":
    main(*sys.argv[1:])
