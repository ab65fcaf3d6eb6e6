"""Decode steps of a hybrid beside one whose layers all attend, and what each keeps of a sequence, on this processor.

python benchmarks/hybrid_decode.py [--hybrid qwen3_next] [--attention qwen3_moe] [--lengths 256 2048] [--sequences 8]

Both have the hybrid's sizes where they have the same ones, random weights in fp32, and make steps in turn. Prints the
median milliseconds of a step at each length, the bytes of states that a sequence has (a slot, however long it is), and
those of keys and values at that length.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

ROOT = Path(__file__).resolve().parents[1]
STEPS = 20


def bytes_of(arrays: Any) -> int:
    """Returns the bytes of states or pages, without the numbers of first pages."""
    return sum(x.nbytes for x in jax.tree.leaves(arrays) if x.ndim > 1)


def make_engine(family: str, sizes: dict[str, Any], sequences: int, length: int) -> Any:
    """Returns an engine in which so many sequences of that length decode."""
    package = f"{family}_cpu"
    config, model, engine = (importlib.import_module(f"{package}.{name}") for name in ("config", "model", "engine"))
    fields = {field.name for field in dataclasses.fields(config.ModelConfig)}
    tiny = config.PRESETS["tiny"]
    small = dataclasses.replace(tiny, **{name: x for name, x in sizes.items() if name in fields})
    weights = jax.jit(lambda: model.Decoder(small, nnx.Rngs(0)))()
    room = length + 3 * STEPS
    settings = engine.EngineSettings(
        max_sequences=sequences, max_length=room, chunk=256, kv_cache_tokens=2 * sequences * room
    )
    subject, rng = engine.Engine(small, weights, set(), settings), np.random.default_rng(0)
    for _ in range(sequences):
        prompt = rng.integers(0, small.vocab_size, length).tolist()
        subject.add(prompt, engine.SamplingParams(max_tokens=2 * STEPS, ignore_eos=True))
    while len(subject.running) < sequences or any(not request.tokens for request in subject.running):
        subject.step()
    return subject


def measure(families: list[str], sizes: dict[str, Any], sequences: int, length: int) -> None:
    """Prints a row for each family at one length."""
    engines = {family: make_engine(family, sizes, sequences, length) for family in families}
    taken: dict[str, list[float]] = {family: [] for family in families}
    for _ in range(STEPS):
        for family, engine in engines.items():
            start = time.perf_counter()
            engine.step()
            taken[family].append(1e3 * (time.perf_counter() - start))
    for family, engine in engines.items():
        kept = engine.device.state
        states = getattr(kept, "states", ())
        of_states = sum(x.nbytes // len(x) for x in jax.tree.leaves(states))  # [slots, ...]
        pages = (bytes_of(kept) - bytes_of(states)) // engine.pool.pages
        of_keys = pages * -(-length // engine.settings.page_size)
        step = statistics.median(taken[family])
        print(f"| {family} | {length:,} | {step:.1f} | {of_states:,} | {of_keys:,} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hybrid", default="qwen3_next")
    parser.add_argument("--attention", default="qwen3_moe")
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 2048, 8192])
    parser.add_argument("--sequences", type=int, default=8)
    arguments = parser.parse_args()
    families = [arguments.hybrid, arguments.attention]
    with tempfile.TemporaryDirectory() as folder:
        for family in families:
            build = [sys.executable, "-m", "generator", "build", family, "--target=cpu", "--with", "serve"]
            subprocess.run([*build, "--out", folder], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        sys.path.insert(0, folder)
        tiny = importlib.import_module(f"{arguments.hybrid}_cpu.config").PRESETS["tiny"]
        sizes = dataclasses.asdict(tiny) | {"dtype": "float32", "context_length": 2 * max(arguments.lengths)}
        print("| family | tokens | ms of a step | bytes of states | of keys and values |\n|---|---|---|---|---|")
        for length in arguments.lengths:
            measure(families, sizes, arguments.sequences, length)


if __name__ == "__main__":
    main()
