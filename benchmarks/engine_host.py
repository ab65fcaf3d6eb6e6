"""CPU milliseconds of Python for a decode step of the engine, without the device: what a host has to do in time.

python benchmarks/engine_host.py [--generated FOLDER] [--sequences 64 256] [--draft-tokens N]

The device is replaced by arrays that are there already. All sequences decode; a step gives each of them a token.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

STEPS = 100


def milliseconds(count: int, draft_tokens: int) -> float:
    """Returns the median of five runs."""
    from llama2_cpu import config, device, engine, model

    settings = dataclasses.replace(config.PRESETS["tiny"], layers=1, width=16, context_length=2048)
    weights = jax.jit(lambda: model.Decoder(settings, nnx.Rngs(0)))()
    sizes = engine.EngineSettings(max_sequences=count, max_length=1024, draft_tokens=draft_tokens)
    subject, rng = engine.Engine(settings, weights, set(), sizes), np.random.default_rng(0)

    def run(step: Any, length: int, whole: bool) -> Any:
        shape = len(step.slots), length if whole else 1
        tokens, likeliest = rng.integers(3, 250, shape, dtype=np.int32), np.zeros((*shape, 20), np.float32)
        return device.StepOutput(np.zeros(shape, np.float32), tokens, likeliest.astype(np.int32), likeliest)

    subject.device.run, subject.device.write = run, lambda *_: None
    for _ in range(count):
        subject.add(rng.integers(3, 250, 100).tolist(), engine.SamplingParams(max_tokens=900, temperature=1.0))
    while any(not request.tokens for request in subject.running) or len(subject.running) < count:
        subject.step()
    taken = []
    for _ in range(5):
        begin = time.thread_time()
        for _ in range(STEPS):
            subject.step()
        taken.append(time.thread_time() - begin)
    return 1e3 * float(np.median(taken)) / STEPS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generated", type=Path, default=Path(__file__).resolve().parents[1] / "generated")
    parser.add_argument("--sequences", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--draft-tokens", type=int, default=0)
    given = parser.parse_args()
    sys.path.insert(0, str(given.generated))
    for count in given.sequences:
        print(f"{count} sequences: {milliseconds(count, given.draft_tokens):.2f} ms a step", flush=True)


if __name__ == "__main__":
    main()
