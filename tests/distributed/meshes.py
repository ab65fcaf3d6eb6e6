"""One process of a job that trains a package over some meshes: what `test_meshes` starts.

python -m distributed.meshes PACKAGE OUT DATA CASE...  with CASE as DATA,FSDP,TENSOR,ACCUMULATION[,STAGE]
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from pathlib import Path

import jax
import numpy as np
from jax.experimental import multihost_utils

STEPS = 3


def make_mesh(parallel, case: str) -> jax.sharding.Mesh:
    data, fsdp, tensor, _, *stages = map(int, case.split(","))
    return parallel.make_mesh(data, fsdp, tensor, **dict(zip(["stage"], stages, strict=False)))


def run(package: str, out: Path, data: str, case: str) -> None:
    """Writes the losses, the norms of the gradients and the parameters after the last step to OUT/CASE.npz."""
    modules = {name: importlib.import_module(f"{package}.{name}") for name in ("step", "data", "parallel")}
    train, parallel = modules["step"], modules["parallel"]
    small = importlib.import_module(f"{package}.tests.small").SMALL
    accumulation = int(case.split(",")[3])
    config = dataclasses.replace(
        small,
        **dict(vocab_size=260, heads=8, kv_heads=4, head_size=8, sequence_length=32, batch_size=8, data=data),
        **dict(accumulation=accumulation, seed=1, warmup_ratio=0.0, learning_rate=0.01, max_gradient_norm=1e9),
        adam_epsilon=0.1,  # a smooth function of the gradient: its sign would be one of rounding
    )
    mesh = make_mesh(parallel, case)
    abstract_batch = modules["data"].abstract_batch(config, mesh)
    batches = modules["data"].Batches(config, abstract_batch["tokens"].sharding)
    found = {"loss": [], "norm": []}
    with jax.set_mesh(mesh):
        state = train.create_state(config, mesh)
        step = train.compile_step(state, abstract_batch, config)
        for _ in range(STEPS):
            state, metrics = step(state, batches.to_devices(next(batches)))
            found["loss"].append(float(metrics["train/loss"]))
            found["norm"].append(float(metrics["train/gradient_norm"]))
        arrays = parallel.named_arrays(state.model)
        parameters = {name: multihost_utils.process_allgather(x, tiled=True) for name, x in arrays.items()}
    if jax.process_index() == 0:
        np.savez(out / f"{case}.npz", **found, **parameters)


def feed(package: str, out: Path, data: str, case: str) -> None:
    """Writes the numbers of the documents that this process feeds, in the order of their rows, to OUT/CASE-INDEX."""
    module, parallel = (importlib.import_module(f"{package}.{name}") for name in ("data", "parallel"))
    small = importlib.import_module(f"{package}.tests.small").SMALL
    config = dataclasses.replace(small, vocab_size=260, sequence_length=32, batch_size=8, data=data, eval_share=0.0)
    mesh = make_mesh(parallel, case)
    batches = module.Batches(config, module.abstract_batch(config, mesh)["tokens"].sharding)
    found = {row: [] for row in batches.rows}
    for _ in range(60):
        batch = next(batches)
        for row, tokens in zip(batches.rows, batch["tokens"], strict=True):
            for text in bytes(np.where(tokens < 256, tokens, 0).tolist()).split(b"document ")[1:]:
                found[row].append(int(text.split(b":")[0]))
    (out / f"{case}-{jax.process_index()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    package, out, data, *cases = sys.argv[1:]
    importlib.import_module(f"{package}.cluster").join_job()
    for case in cases:
        run(package, Path(out), data, case)
        feed(package, Path(out), data, case)
