"""Speed of the engine against transformers' generate in static batches: the same weights, requests and machine.

python benchmarks/serving.py [--target gpu] [--sizes "20 M"] [--requests N] [--out DIR]

Requests have synthetic lengths, log-normal as chats have them, and draw greedily until their length. All at once: each
side's tokens per second, of the tokens that were asked for; theirs in batches of the size that is best for it, padded
on the left, each until its longest answer. Then Poisson arrivals at half of that rate, ours alone: time to the first
token (TTFT), between tokens (ITL), and per token after the first (TPOT). Then prompts with one beginning of 1,000
tokens against prompts that share nothing, and texts that repeat themselves, as a model of random weights does, with
draft tokens and without. Writes serving.json and serving.png. No HTTP; compilation is not timed on any side, and
transformers compiles nothing. benchmarks/serving_vllm.py compares with vLLM.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "generated"))

import jax
import matplotlib.pyplot as plt
import numpy as np
import torch
from flax import nnx
from transformers import LlamaForCausalLM

SIZES = {
    "20 M": dict(layers=4, width=512, heads=8, kv_heads=8, head_size=64, mlp_width=1408),
    "160 M": dict(layers=12, width=768, heads=12, kv_heads=12, head_size=64, mlp_width=3072, vocab_size=32_000),
    "20 M, vocabulary of 128k": dict(
        layers=4, width=512, heads=8, kv_heads=8, head_size=64, mlp_width=1408, vocab_size=128_256
    ),
}
Requests = list[tuple[list[int], int]]  # prompts, and how many tokens to add


def lengths(rng: np.random.Generator, median: float, most: int, count: int) -> np.ndarray:
    return np.clip(rng.lognormal(np.log(median), 0.8, count), 4, most).astype(int)


def ours(engine: Any, sampling: Any, requests: Requests, gaps: np.ndarray) -> tuple[float, list[list[float]]]:
    """Seconds until all have ended, and the time of each token of each request since it came."""
    came = np.cumsum(gaps)
    times: dict[Any, list[float]] = {}
    starts: dict[Any, float] = {}
    begin = time.perf_counter()
    while len(starts) < len(requests) or engine.queued or engine.running:
        now = time.perf_counter() - begin
        while len(starts) < len(requests) and came[len(starts)] <= now:
            prompt, most = requests[len(starts)]
            request = engine.add(prompt, sampling(max_tokens=most, ignore_eos=True))
            starts[request], times[request] = came[len(starts)], []
        for request in engine.step():
            now = time.perf_counter() - begin
            times[request] += [now - starts[request]] * (len(request.tokens) - len(times[request]))
    return time.perf_counter() - begin, list(times.values())


def theirs(model: LlamaForCausalLM, requests: Requests, size: int) -> float:
    begin = time.perf_counter()
    for start in range(0, len(requests), size):
        batch = requests[start : start + size]
        longest = max(len(prompt) for prompt, _ in batch)
        ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt, _ in batch], device=model.device)
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p, _ in batch], device=model.device)
        most = max(most for _, most in batch)
        settings = dict(max_new_tokens=most, min_new_tokens=most, do_sample=False, pad_token_id=0)
        model.generate(ids, attention_mask=mask, **settings)
    return time.perf_counter() - begin


def programs(device: Any) -> int:
    """How many programs the functions of a package's device.py are compiled to."""
    return sum(function._cache_size() for function in vars(device).values() if hasattr(function, "_cache_size"))


def percentiles(times: list[list[float]]) -> dict[str, list[float]]:
    """p50 and p99 in milliseconds."""
    found = {
        "ttft": [of[0] for of in times],
        "itl": [gap for of in times for gap in np.diff(of)],
        "tpot": [(of[-1] - of[0]) / (len(of) - 1) for of in times if len(of) > 1],
    }
    return {name: [round(float(np.percentile(x, p)) * 1000, 1) for p in (50, 99)] for name, x in found.items()}


def measure(name: str, package: str, device: str, count: int, folder: Path) -> dict[str, Any]:
    """Everything about one model, whose checkpoint goes to a folder."""
    module = {
        part: importlib.import_module(f"{package}.{part}")
        for part in ("config", "device", "engine", "huggingface", "model")
    }
    dtype = "float32" if device == "cpu" else "bfloat16"
    config = dataclasses.replace(module["config"].PRESETS["tiny"], **SIZES[name], context_length=2048, dtype=dtype)
    model = jax.jit(lambda: module["model"].Decoder(config, nnx.Rngs(0)))()
    module["huggingface"].save_hf(config, model, folder)
    peer = LlamaForCausalLM.from_pretrained(folder, dtype=dtype).to(device).eval()
    model = jax.tree.map(lambda x: x.astype(dtype), model)
    sizes = module["engine"].EngineSettings(max_sequences=32, max_length=1200)
    engine, sampling = module["engine"].Engine(config, model, set(), sizes), module["engine"].SamplingParams
    start = time.perf_counter()
    found: dict[str, Any] = {"programs": len(list(engine.warm_up())), "warm_up_s": time.perf_counter() - start}
    compiled = programs(module["device"])
    rng = np.random.default_rng(0)

    def text(length: int) -> list[int]:
        return rng.integers(3, 250, length).tolist()

    prompts, answers = lengths(rng, 100, 512, count), lengths(rng, 100, 256, count)
    requests = [(text(prompt), int(answer)) for prompt, answer in zip(prompts, answers, strict=True)]
    seconds, _ = ours(engine, sampling, requests, np.zeros(count))
    found["tokens_per_s"] = answers.sum() / seconds
    print(f"{name}: {found['tokens_per_s']:.0f} tokens/s", flush=True)
    rates = {size: answers.sum() / theirs(peer, requests, size) for size in (4, 8, 16, 32)}
    print(f"{name}: transformers, by batch size: {rates}", flush=True)
    found["theirs"] = {"batch": max(rates, key=rates.__getitem__), "tokens_per_s": max(rates.values())}
    found["ratio"] = found["tokens_per_s"] / max(rates.values())
    others = [(text(len(prompt)), answer) for prompt, answer in requests]  # that no page has
    gaps = rng.exponential(2 * seconds / count, count)
    _, times = ours(engine, sampling, others, gaps)
    found["half_load_ms_p50_p99"] = percentiles(times)
    shared = text(1000)
    alike, apart = [(shared + text(16), 16) for _ in range(16)], [(text(1016), 16) for _ in range(16)]
    taken = [ours(engine, sampling, of, np.zeros(16))[0] for of in (apart, alike)]
    found["shared_beginning"] = taken[0] / taken[1]
    found["compiled_under_load"] = programs(module["device"]) - compiled
    found["draft_tokens"] = {
        str(texts): speedup(module["engine"], config, model, text(20) * 10, texts) for texts in (1, 8)
    }
    return found


def speedup(module: Any, config: Any, model: Any, prompt: list[int], texts: int) -> float:
    """How many times faster texts that repeat themselves are with 4 draft_tokens a step, which are checked by it."""
    seconds, made = [], []
    for draft_tokens in 0, 4:
        engine = module.Engine(
            config, model, set(), module.EngineSettings(max_sequences=8, max_length=1200, draft_tokens=draft_tokens)
        )
        list(engine.warm_up())
        begin = time.perf_counter()
        requests = engine.generate([prompt] * texts, module.SamplingParams(max_tokens=400, ignore_eos=True))
        seconds.append(time.perf_counter() - begin)
        made.append([request.tokens for request in requests])
    print(
        f"{texts} texts of {len(set(made[0][0]))} different tokens, the same with draft_tokens: {made[0] == made[1]}",
        flush=True,
    )
    return seconds[0] / seconds[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--sizes", nargs="+", choices=[*SIZES], default=["20 M", "160 M"])
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path())
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.target == "cpu":
        jax.config.update("jax_platforms", "cpu")
    package, device = f"llama2_{arguments.target}", {"cpu": "cpu", "gpu": "cuda"}[arguments.target]
    results = {}
    for name in arguments.sizes:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "hf"
            results[name] = measure(name, package, device, arguments.requests, folder)
    (arguments.out / "serving.json").write_text(json.dumps(results, indent=2))
    _, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    for offset, side in (-0.2, "engine"), (0.2, "transformers, static batches"):
        rates = [r["tokens_per_s"] if side == "engine" else r["theirs"]["tokens_per_s"] for r in results.values()]
        axes[0].bar(np.arange(len(results)) + offset, rates, 0.4, label=side)
    axes[0].set(xticks=range(len(results)), xticklabels=list(results), ylabel="tokens/s, all requests at once")
    axes[0].legend()
    for offset, (name, result) in enumerate(results.items()):
        times = result["half_load_ms_p50_p99"]
        axes[1].bar(np.arange(len(times)) + 0.4 * offset - 0.2, [p99 for _, p99 in times.values()], 0.4, label=name)
    axes[1].set(xticks=range(3), xticklabels=["TTFT", "ITL", "TPOT"], ylabel="ms at half load, p99")
    axes[1].legend()
    plt.savefig(arguments.out / "serving.png", dpi=150)
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
