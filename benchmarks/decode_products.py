"""Products with YNNPACK and without it in a CPU's engine: all steps with it, decode steps without it, all without it.

python benchmarks/decode_products.py [--requests N] [--rounds N]

The three engines take turns in one process, with the same weights of 20 M parameters and requests of synthetic lengths,
log-normal as chats have them; then prompts of 1,000 tokens, of which 2 tokens are sampled. Prints the median over
rounds of each engine's speed against the first. Compilation is not timed; there is no HTTP.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "generated"))

import jax
import numpy as np
from flax import nnx
from llama2_cpu import device, engine
from llama2_cpu.config import PRESETS
from llama2_cpu.model import Decoder
from serving import SIZES, Requests, lengths

COMPILED = device.run, device.run_decode
WITHOUT = jax.jit(
    device.run.__wrapped__,
    static_argnames=("length", "score_all"),
    donate_argnames="slots",
    compiler_options={"xla_cpu_experimental_ynn_fusion_type": ""},
)
ENGINES = {"with YNNPACK": (COMPILED[0], COMPILED[0]), "decode without": COMPILED, "without": (WITHOUT, WITHOUT)}


def seconds(subject: Any, requests: Requests) -> float:
    begin = time.perf_counter()
    for prompt, most in requests:
        subject.add(prompt, engine.SamplingParams(max_tokens=most, ignore_eos=True))
    while subject.queued or subject.running:
        subject.step()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    config = dataclasses.replace(PRESETS["tiny"], **SIZES["20 M"], context_length=2048, dtype="float32")
    model = jax.jit(lambda: Decoder(config, nnx.Rngs(0)))()
    subjects = {}
    for name, (device.run, device.run_decode) in ENGINES.items():
        settings = engine.EngineSettings(max_sequences=32, max_length=1200)
        subjects[name] = engine.Engine(config, model, set(), settings)
        list(subjects[name].warm_up())
    rng = np.random.default_rng(0)
    prompts, answers = lengths(rng, 100, 512, arguments.requests), lengths(rng, 100, 256, arguments.requests)
    for kind, sizes in ("chats", (prompts, answers)), ("prompts of 1,000", (np.full(8, 1000), np.full(8, 2))):
        taken: dict[str, list[float]] = {name: [] for name in ENGINES}
        for _ in range(arguments.rounds):
            for name, (device.run, device.run_decode) in ENGINES.items():  # with prompts that no page has
                requests = [
                    (rng.integers(3, 250, prompt).tolist(), int(answer)) for prompt, answer in zip(*sizes, strict=True)
                ]
                taken[name].append(seconds(subjects[name], requests))
        for name, each in taken.items():
            ratio = statistics.median(first / own for first, own in zip(taken["with YNNPACK"], each, strict=True))
            print(f"{kind}: {name}: {min(each):.2f} s at best, {ratio:.3f} times the speed", flush=True)


if __name__ == "__main__":
    main()
