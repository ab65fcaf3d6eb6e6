"""Speed of the engine beside vLLM's: the same weights, requests and machine, in turns.

python benchmarks/serving_vllm.py PYTHON [--sizes "20 M"] [--dtypes float32] [--temperatures 0] [--requests 12 48]
    [--rounds 3] [--half-load] [--out FILE]

PYTHON is an interpreter that has vLLM, which runs in two processes of its own: with its model compiled, and eagerly; of
them the faster counts in each round. Each engine is warm, and the processes of the others are stopped while one
runs: their threads would take cores. Requests have synthetic lengths, log-normal as chats have them, no common
prefixes, and run until their length. All at once: tokens per second, of those that were asked for. --half-load: Poisson
arrivals at half of the engine's rate with the largest number of requests, the same for both: time to the first token
(TTFT), between tokens (ITL), and per token after the first (TPOT). Prints a table, and writes all results to FILE as
JSON. Neither HTTP nor compilation is timed.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import itertools
import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "generated"))

import jax
import numpy as np
from flax import nnx
from serving import SIZES, Requests, lengths, ours, percentiles

PACKAGE = "llama2_cpu"


class Peer:
    """A process of vLLM's engine, which is stopped between runs."""

    def __init__(self, python: str, folder: Path, dtype: str, flags: list[str]):
        command = python, Path(__file__).parent / "peers" / "vllm_engine.py", folder, dtype, *flags
        self.name = " ".join(["vLLM", *flags])
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
        )

    def run(self, requests: Requests, gaps: np.ndarray, temperature: float) -> dict[str, Any]:
        """Returns seconds and times, as peers/vllm_engine.py tells them."""
        assert self.process.stdin and self.process.stdout
        self.process.send_signal(signal.SIGCONT)
        line = {"requests": requests, "gaps": gaps.tolist(), "temperature": temperature}
        print(json.dumps(line), file=self.process.stdin, flush=True)
        for answer in self.process.stdout:
            if answer.startswith("RESULT "):
                self.process.send_signal(signal.SIGSTOP)
                return json.loads(answer.removeprefix("RESULT "))
        self.log.seek(0)
        raise SystemExit(f"{self.name}: {self.log.read()[-2000:]}")


class Ours:
    """The engine of a package, in this process."""

    name = "engine"

    def __init__(self, config: Any, model: Any):
        module = importlib.import_module(f"{PACKAGE}.engine")
        self.sampling = module.SamplingParams
        sizes = module.EngineSettings(max_sequences=32, max_length=1200)
        self.engine = module.Engine(config, model, set(), sizes)
        list(self.engine.warm_up())

    def run(self, requests: Requests, gaps: np.ndarray, temperature: float) -> dict[str, Any]:
        def sampling(**settings: Any) -> Any:
            return self.sampling(temperature=temperature, **settings)

        seconds, times = ours(self.engine, sampling, requests, gaps)
        return {"seconds": seconds, "times": times}


def draw_requests(rng: np.random.Generator, count: int) -> Requests:
    prompts, answers = lengths(rng, 100, 512, count), lengths(rng, 100, 256, count)
    return [(rng.integers(3, 250, n).tolist(), int(most)) for n, most in zip(prompts, answers, strict=True)]


def measure(size: str, dtype: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns the results of one model: of each number of requests and temperature, and at half load."""
    files = {name: importlib.import_module(f"{PACKAGE}.{name}") for name in ("config", "huggingface", "model")}
    config = dataclasses.replace(files["config"].PRESETS["tiny"], **SIZES[size], context_length=2048, dtype=dtype)
    model = jax.jit(lambda: files["model"].Decoder(config, nnx.Rngs(0)))()
    with tempfile.TemporaryDirectory() as scratch:
        files["huggingface"].save_hf(config, model, Path(scratch, "hf"))
        peers = [Peer(arguments.python, Path(scratch, "hf"), dtype, flags) for flags in ([], ["--eager"])]
        warm = [([7] * len(prompt), 8) for prompt, _ in draw_requests(np.random.default_rng(1), 8)]
        for peer in peers:
            peer.run(warm, np.zeros(8), 0.0)
    engines = [Ours(config, jax.tree.map(lambda x: x.astype(dtype), model)), *peers]
    rng = np.random.default_rng(0)
    results = []
    for count, temperature in itertools.product(arguments.requests, arguments.temperatures):
        rates: dict[str, list[float]] = {engine.name: [] for engine in engines}
        for _ in range(arguments.rounds):
            requests = draw_requests(rng, count)  # anew, so that no page of the KV cache has them
            for engine in engines:
                seconds = engine.run(requests, np.zeros(count), temperature)["seconds"]
                rates[engine.name].append(round(sum(most for _, most in requests) / seconds))
        of_ours, *others = rates.values()
        ratios = [round(mine / max(each), 3) for mine, *each in zip(of_ours, *others, strict=True)]
        result = {"size": size, "dtype": dtype, "requests": count, "temperature": temperature, "tokens/s": rates}
        results.append(result | {"ratios": ratios})
        print(json.dumps(results[-1]), flush=True)
    if arguments.half_load:
        requests = draw_requests(rng, count)
        rate = np.median(of_ours) / 2 / np.mean([most for _, most in requests])  # requests a second
        gaps = rng.exponential(1 / rate, count)
        for engine in engines:
            times = engine.run(requests, gaps, temperature)["times"]
            result = {"size": size, "dtype": dtype, "half_load_ms_p50_p99": percentiles(times), "engine": engine.name}
            results.append(result)
            print(json.dumps(result), flush=True)
    for peer in peers:
        peer.process.kill()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python")
    parser.add_argument("--sizes", nargs="+", choices=[*SIZES], default=["20 M"])
    parser.add_argument("--dtypes", nargs="+", choices=("float32", "bfloat16"), default=["float32"])
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0])
    parser.add_argument("--requests", nargs="+", type=int, default=[12, 48])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--half-load", action="store_true")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    results = []
    for size, dtype in itertools.product(arguments.sizes, arguments.dtypes):
        results += measure(size, dtype, arguments)
        if arguments.out:
            arguments.out.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
