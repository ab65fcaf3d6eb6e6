"""Training speed against transformers on torch: the same model, batch and dtype, in turn, in one run.

python benchmarks/training.py [--target gpu] [--steps N]

Both train LlamaForCausalLM's architecture with AdamW on random tokens of full sequences (one document a row, so that
both do the same work); each step is timed, ours and theirs in turn, and the ratio of medians is printed. On a CPU both
compute in fp32; on a GPU in bf16, parameters in fp32, theirs through torch.compile.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "generated"))

import jax
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM


def sizes_on(target: str, presets: dict[str, Any]) -> dict[str, Any]:
    if target == "gpu":  # what fits beside the other's memory
        return {"7B, 4 of 32": dataclasses.replace(presets["7b"], layers=4, batch_size=4)}
    wider = dict(width=512, heads=8, kv_heads=8, head_size=64, mlp_width=1408)
    return {"tiny, 4.6 M": presets["tiny"], "20 M": dataclasses.replace(presets["tiny"], **wider)}


def ours(package: str, config: Any, tokens: np.ndarray):
    """A function that makes one step and waits for it."""
    shape = tokens[:, :-1].shape
    batch = {
        "tokens": tokens[:, :-1],
        "targets": tokens[:, 1:],
        "positions": np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape),
        "segment_ids": np.ones(shape, np.int32),
        "weights": np.ones(shape, np.float32),
    }
    batch = jax.device_put(batch)
    train = importlib.import_module(f"{package}.train")
    mesh = importlib.import_module(f"{package}.parallel").make_mesh()
    with jax.set_mesh(mesh):
        state = train.create_state(config, mesh)
        step = train.compile_step(state, batch)

    def run() -> None:
        nonlocal state
        state, metrics = step(state, batch)
        float(metrics["train/loss"])

    return run


def theirs(device: str, config: Any, tokens: np.ndarray):
    """The same step with transformers and torch."""
    sizes = LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.width,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_size,
        intermediate_size=config.mlp_width,
        tie_word_embeddings=False,
        attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(sizes).float().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    inputs, targets = (torch.tensor(x).long().to(device) for x in (tokens[:, :-1], tokens[:, 1:]))
    in_bf16 = torch.autocast(device, torch.bfloat16) if device == "cuda" else contextlib.nullcontext()

    def loss_of(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with in_bf16:
            logits = model(inputs, use_cache=False).logits
            return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    if device == "cuda":
        torch.set_float32_matmul_precision("high")
        loss_of = torch.compile(loss_of)

    def run() -> None:
        loss = loss_of(inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10, help="timed steps of each")
    parser.add_argument("--target", choices=("cpu", "gpu"), default="cpu")
    arguments = parser.parse_args()
    steps, target = arguments.steps, arguments.target
    package, device = f"llama2_{target}", {"cpu": "cpu", "gpu": "cuda"}[target]
    if target == "cpu":
        jax.config.update("jax_platforms", "cpu")
    else:  # before the first use of the device
        os.environ["XLA_FLAGS"] = " ".join(importlib.import_module(f"{package}.train").XLA_FLAGS)
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # both are on it
    presets = importlib.import_module(f"{package}.config").PRESETS
    print(f"{'model':12} {'ours':>16} {'transformers':>16} {'ratio':>6}   (tokens/s, medians of {steps} steps in turn)")
    for name, config in sizes_on(target, presets).items():
        tokens = np.random.default_rng(0).integers(
            0, config.vocab_size, (config.batch_size, config.sequence_length + 1), dtype=np.int32
        )
        runs = {"ours": ours(package, config, tokens), "theirs": theirs(device, config, tokens)}
        times: dict[str, list[float]] = {key: [] for key in runs}
        for number in range(steps + 2):
            for key, run in runs.items():
                start = time.perf_counter()
                run()
                if number >= 2:
                    times[key].append(time.perf_counter() - start)
        speed = {k: config.batch_size * config.sequence_length / statistics.median(t) for k, t in times.items()}
        ratio = speed["ours"] / speed["theirs"]
        print(f"{name:12} {speed['ours']:16,.0f} {speed['theirs']:16,.0f} {ratio:6.2f}")


if __name__ == "__main__":
    main()
