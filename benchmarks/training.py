"""Training speed and memory against transformers on torch: the same model, batch and optimizer, in one run.

python benchmarks/training.py [--core N] [--target gpu] [--steps N] [--models NAME ...] [--ways WAY ...]

Both train transformers' architecture with AdamW on random tokens of full sequences (one document a row, so that both do
the same work). Each way of either is a process, with an allocator and memory of its own; they make steps in turn. On a
CPU both compute in fp32 and in bf16, parameters in fp32, torch as it is and through torch.compile; on a GPU both in
bf16, theirs through torch.compile. It prints tokens per second at the median step, the most memory that each process
had, compilation included, and ours at its best over theirs at its best. With --core all processes run on that core, and
seconds are of the processor: a busy machine disturbs them less.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
WIDER = dict(width=512, heads=8, kv_heads=8, head_size=64, mlp_width=1408)
# of Mamba-2 130M, over fewer tokens
STATE_SPACES = dict(width=768, layers=24, mamba_heads=24, state_size=128, vocab_size=16_384, batch_size=2)
# target -> name -> architecture, preset, other settings
MODELS: dict[str, dict[str, tuple[str, str, dict[str, int]]]] = {
    "cpu": {
        "tiny": ("llama2", "tiny", {}),
        "tiny-4096": ("llama2", "tiny", dict(sequence_length=4096, batch_size=1)),
        "20M": ("llama2", "tiny", WIDER),
        "qwen3_moe": ("qwen3_moe", "tiny", {}),
        "qwen3_next": ("qwen3_next", "tiny", {}),
        "mamba2-100M": ("mamba2", "tiny", STATE_SPACES),
    },
    "gpu": {"7B-4-of-32": ("llama2", "7b", dict(layers=4, batch_size=4))},  # what fits beside the other's memory
}
EAGER, COMPILED = ("torch float32", "torch bfloat16"), ("torch float32 compile", "torch bfloat16 compile")
WAYS = {
    "cpu": ("ours float32", "ours bfloat16", *EAGER, *COMPILED),
    "gpu": ("ours bfloat16", "torch bfloat16 compile"),
}


def ours(package: str, config: Any, tokens: np.ndarray) -> tuple[Callable, Callable]:
    """Functions that make one step and wait for it, and that give the peak memory of a GPU."""
    # both are on the GPU; before the first use of it
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax

    train = importlib.import_module(f"{package}.step")
    if package.endswith("gpu"):
        command = importlib.import_module(f"{package}.train")
        command.set_flags(command.FLAGS)
    shape = tokens[:, :-1].shape
    batch = {
        "tokens": tokens[:, :-1],
        "targets": tokens[:, 1:],
        "positions": np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape),
        "segment_ids": np.ones(shape, np.int32),
        "weights": np.ones(shape, np.float32),
    }
    mesh = importlib.import_module(f"{package}.parallel").make_mesh()
    batch = jax.device_put(batch)
    with jax.set_mesh(mesh):
        state = train.create_state(config, mesh)
        step = train.compile_step(state, batch, config)

    def run() -> None:
        nonlocal state
        state, metrics = step(state, batch)
        float(metrics["train/loss"])

    return run, lambda: jax.devices()[0].memory_stats()["peak_bytes_in_use"]


def theirs(package: str, config: Any, tokens: np.ndarray, dtype: str, compiled: bool) -> tuple[Callable, Callable]:
    """The same with transformers and torch."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    device = "cpu" if package.endswith("cpu") else "cuda"
    files = importlib.import_module(f"{package}.huggingface")
    hf = {name: value for name, value, _ in files.hf_structure(config) if value is not None}
    hf |= {name: getattr(config, field) for name, field in files.hf_sizes()}
    share = hf.get("router_aux_loss_coef", 0)
    if share:
        hf |= {"output_router_logits": True, "experts_implementation": "grouped_mm"}
    sizes = AutoConfig.for_model(hf.pop("model_type"), **hf, use_cache=False)  # sdpa, where it attends
    model = AutoModelForCausalLM.from_config(sizes).float().train().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    inputs, targets = (torch.tensor(x).long().to(device) for x in (tokens[:, :-1], tokens[:, 1:]))
    low = torch.autocast(device, torch.bfloat16) if dtype == "bfloat16" else contextlib.nullcontext()

    def loss_of(inputs: Any, targets: Any) -> Any:
        with low:
            outputs = model(inputs)
            loss = torch.nn.functional.cross_entropy(outputs.logits.float().flatten(0, 1), targets.flatten())
            return loss + share * outputs.aux_loss if share else loss

    if device == "cuda":
        torch.set_float32_matmul_precision("high")
    if compiled:
        loss_of = torch.compile(loss_of)

    def run() -> None:
        loss = loss_of(inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()

    return run, torch.cuda.max_memory_allocated


def work(arguments: argparse.Namespace) -> None:
    """Makes a step for each line that comes, and prints its seconds; at the end, the peak memory in MiB."""
    target, (model,), way = arguments.target, arguments.models, arguments.way.split()
    answers, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no answer
    architecture, preset, changes = MODELS[target][model]
    package = f"{architecture}_{target}"
    config = importlib.import_module(f"{package}.config").PRESETS[preset]
    config = dataclasses.replace(config, dtype=way[1], **changes)
    shape = config.batch_size, config.sequence_length + 1
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, shape, dtype=np.int32)
    if way[0] == "ours":
        run, peak = ours(package, config, tokens)
    else:
        run, peak = theirs(package, config, tokens, way[1], "compile" in way)
    for _ in range(2):
        run()
    clock = time.perf_counter if arguments.core is None else time.process_time
    print(config.batch_size * config.sequence_length, file=answers, flush=True)
    for _ in sys.stdin:
        start = clock()
        run()
        print(clock() - start, file=answers, flush=True)
    bytes_ = peak() if target == "gpu" else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(bytes_ / 2**20, file=answers, flush=True)


def compare(model: str, arguments: argparse.Namespace, environment: dict[str, str]) -> None:
    """Prints the table of a model."""
    own = [sys.executable, __file__, "--target", arguments.target, "--models", model]
    own += [] if arguments.core is None else ["--core", str(arguments.core)]
    processes = {}
    for way in arguments.ways or WAYS[arguments.target]:
        processes[way] = subprocess.Popen(
            [*own, "--way", way], env=environment, text=True, bufsize=1, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        tokens = int(processes[way].stdout.readline() or sys.exit(f"{way} failed"))  # compiled, one after the other
    times: dict[str, list[float]] = {way: [] for way in processes}
    for _ in range(arguments.steps):
        for way, process in processes.items():
            process.stdin.write("step\n")
            times[way].append(float(process.stdout.readline()))
    results = {}
    for way, process in processes.items():
        rest, _ = process.communicate()
        results[way] = tokens / statistics.median(times[way]), float(rest)
        print(f"{model:12} {way:24} {results[way][0]:10,.0f} {results[way][1]:8,.0f}", flush=True)
    best = [max(((x, way) for way, x in results.items() if way.split()[0] == side)) for side in ("ours", "torch")]
    (our, our_way), (their, their_way) = best
    ratios = f"{our[0] / their[0]:.2f}x the speed, {our[1] / their[1]:.2f}x the memory"
    print(f"{model:12} {our_way} over {their_way}: {ratios}\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10, help="timed steps of each")
    parser.add_argument("--target", choices=MODELS, default="cpu")
    parser.add_argument("--core", type=int, help="core of all processes, whose processor seconds count; else all cores")
    parser.add_argument("--models", nargs="+", help="names of MODELS; else all of the target")
    parser.add_argument("--ways", nargs="+", help="ways to compare, such as 'ours float32' 'torch float32'; else all")
    parser.add_argument("--way", help=argparse.SUPPRESS)  # of this process
    arguments = parser.parse_args()
    if arguments.way:
        return work(arguments)
    if arguments.core is not None:
        os.sched_setaffinity(0, {arguments.core})
    sys.path.insert(0, str(ROOT))
    from generator.recipe.library import Library
    from generator.weaver import weave

    with tempfile.TemporaryDirectory() as folder:
        chosen = arguments.models or MODELS[arguments.target]
        for architecture in {MODELS[arguments.target][model][0] for model in chosen}:
            for path, text in weave(
                architecture, arguments.target, Library.read([ROOT]), parts=("huggingface",)
            ).files.items():
                (file := Path(folder, f"{architecture}_{arguments.target}", path)).parent.mkdir(
                    parents=True, exist_ok=True
                )
                file.write_text(text)
        seconds = "the processor" if arguments.core is not None else "the clock"
        load = os.getloadavg()[0]
        print(f"tokens per second of {seconds}, medians of {arguments.steps} steps in turn; peak MiB; load {load:.1f}")
        for model in chosen:
            # from the start, so that no process looks for TPUs, which takes memory
            platforms = {"JAX_PLATFORMS": "cpu"} if arguments.target == "cpu" else {}
            compare(model, arguments, os.environ | platforms | {"PYTHONPATH": folder})


if __name__ == "__main__":
    main()
