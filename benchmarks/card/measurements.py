"""What is measured on a GPU, in the order of worth: each line is a process of its own."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# folder below packages/ -> architecture and parts
PACKAGES = {
    "plain": ("llama2", ()),
    "packed": ("llama2", ("packed_attention",)),
    "fp8": ("llama2", ("fp8",)),
    "serve": ("llama3", ("serve",)),
    "experts": ("qwen3_moe", ()),
}


@dataclass(frozen=True)
class Sizes:
    """A model, and the work that it gets. `small` replaces fields of the preset and of the work on a CPU."""

    title: str
    folder: str  # of PACKAGES
    preset: str
    config: dict[str, Any] = field(default_factory=dict)  # replaces fields of the preset
    work: dict[str, int] = field(default_factory=dict)
    small: dict[str, Any] = field(default_factory=dict)  # the same for the preset tiny
    small_work: dict[str, int] = field(default_factory=dict)


SMALL = dict(layers=2, width=64, heads=2, kv_heads=2, head_size=32, mlp_width=128, dtype="bfloat16")
ROWS = dict(batch_size=2, sequence_length=64)

SIZES = {
    "peak": Sizes(
        "what the card reaches", "plain", "7b", {}, dict(size=8192, copy=2**32), {}, dict(size=128, copy=2**20)
    ),
    "train": Sizes(
        "a training step, Llama 2 7B's sizes, 8 layers, 4 x 4,096 tokens",
        *("plain", "7b", dict(layers=8, batch_size=4), dict(documents=4), SMALL | ROWS, dict(documents=2)),
    ),
    "serve": Sizes(
        "prefill and decoding, Llama 3 8B, KV cache in pages",
        *("serve", "8b", dict(context_length=2048), dict(sequences=64, prompt=1920, answer=128, prefills=8)),
        *(SMALL, dict(sequences=4, prompt=48, answer=16, prefills=2)),
    ),
    "experts": Sizes(
        "experts of Qwen3-30B-A3B, forward and backward, 16,384 tokens",
        *("experts", "30b-a3b", dict(layers=1), dict(tokens=16_384), dict(layers=1), dict(tokens=64)),
    ),
    "long": Sizes(
        "a training step of one row of 32,768 tokens, Llama 2 7B's sizes, 4 layers",
        *("plain", "7b", dict(layers=4, batch_size=1, sequence_length=32_768, context_length=32_768)),
        *(dict(documents=16), SMALL | dict(batch_size=1, sequence_length=128), dict(documents=4)),
    ),
}


@dataclass(frozen=True)
class Measurement:
    """One process: a function of ours.py or peer.py, on sizes."""

    row: str
    way: str
    function: str  # module:name
    sizes: str  # of SIZES
    folder: str = ""  # of PACKAGES; else that of the sizes
    packed: bool = False  # several documents a row, as SIZES says
    seconds: int = 120  # at most

    @property
    def name(self) -> str:
        return f"{self.row}: {self.way}"


MEASUREMENTS = [
    Measurement("peak", "JAX", "ours:peak", "peak", seconds=60),
    Measurement("peak", "torch", "peer:peak", "peak", seconds=60),
    Measurement("train", "ours", "ours:train", "train"),
    Measurement("train", "torch", "peer:train", "train", seconds=180),
    Measurement("train, packed", "ours", "ours:train", "train", "packed", packed=True),
    Measurement("train, packed", "torch", "peer:train", "train", packed=True, seconds=180),
    Measurement("serve", "ours", "ours:serve", "serve", seconds=180),
    Measurement("serve", "torch", "peer:serve", "serve", seconds=180),
    Measurement("experts", "ours", "ours:experts", "experts", seconds=90),
    Measurement("experts", "torch", "peer:experts", "experts", seconds=90),
    Measurement("fp8", "ours", "ours:train", "train", "fp8"),
    Measurement("fp8", "torch", "peer:train_fp8", "train", seconds=180),
    Measurement("long", "ours", "ours:train", "long", seconds=150),
    Measurement("long", "torch", "peer:train", "long", seconds=180),
    Measurement("long, packed", "ours", "ours:train", "long", "packed", packed=True, seconds=150),
    Measurement("long, packed", "torch", "peer:train", "long", packed=True, seconds=180),
    Measurement("train, packed", "ours, by a mask", "ours:train", "train", packed=True),
]


@dataclass
class Task:
    """What the process of a measurement gets: sizes, the model's numbers that `--prepare` wrote, and where to write."""

    measurement: Measurement
    small: bool
    model: dict[str, Any]  # config, hf, flops
    write: Callable[[dict[str, Any]], None]

    @property
    def work(self) -> dict[str, int]:
        sizes = SIZES[self.measurement.sizes]
        return sizes.small_work if self.small else sizes.work

    @property
    def documents(self) -> int:
        return self.work["documents"] if self.measurement.packed else 1

    @property
    def repetitions(self) -> int:
        return 3 if self.small else 10

    def batch(self) -> dict[str, np.ndarray]:
        """Returns random tokens [B, T + 1], and the positions and segment ids [B, T] of documents of one length."""
        config = self.model["config"]
        shape = config["batch_size"], config["sequence_length"]
        rng = np.random.default_rng(0)
        tokens = rng.integers(3, config["vocab_size"], (shape[0], shape[1] + 1), dtype=np.int32)
        places = np.arange(shape[1], dtype=np.int32)
        length = -(-shape[1] // self.documents)
        return {
            "tokens": tokens,
            "positions": np.broadcast_to(places % length, shape).copy(),
            "segment_ids": np.broadcast_to(places // length + 1, shape).copy(),
        }

    def step_flops(self) -> dict[str, float]:
        """Returns the FLOPs of a training step, as each convention counts attention."""
        tokens = self.model["config"]["batch_size"] * self.model["config"]["sequence_length"]
        names = ("full", "causal", "documents") if self.measurement.packed else ("full", "causal")
        return {name: tokens * self.model["flops"][name] for name in names}

    def record(self, what: str, times: list[float], **values: Any) -> None:
        """Writes the seconds of repetitions with what belongs to them, at once."""
        low, median, high = np.percentile(times, (25, 50, 75)).tolist()
        seconds = {"median": median, "p25": low, "p75": high, "repetitions": len(times)}
        self.write({"what": what, "seconds": seconds, **values})

    def expert_rows(self) -> np.ndarray:
        """Returns how many rows each expert gets, as of tokens whose experts are not equally popular: [E]."""
        experts, chosen = self.model["config"]["experts"], self.model["config"]["experts_per_token"]
        rng = np.random.default_rng(0)
        return rng.multinomial(self.work["tokens"] * chosen, rng.dirichlet(np.full(experts, 8.0)))


def repeat(
    run: Callable[[], Any], wait: Callable[[Any], Any], times: int, calls: int = 1, warm: int = 2
) -> list[float]:
    """Returns seconds of one call of `run`, so many times, each the mean over `calls` that are waited for together."""
    seconds = []
    for _ in range(warm + times):
        start = time.perf_counter()
        result = None
        for _ in range(calls):
            result = run()
        wait(result)
        seconds.append((time.perf_counter() - start) / calls)
    return seconds[warm:]


def resident_bytes() -> int:
    """Returns the largest memory that this process had: for machines without a GPU."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
