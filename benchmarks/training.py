"""Training speed on this CPU against transformers on torch: the same model, batch and dtype, in turn, in one run.

python benchmarks/training.py [--steps N]

Both train LlamaForCausalLM's architecture in fp32 with AdamW on random tokens of full sequences (one document a row,
so that both do the same work); each step is timed, ours and theirs in turn, and the ratio of medians is printed.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import sys
import time
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "generated"))

import jax
import numpy as np
import torch
from llama2_cpu.config import PRESETS, Config
from llama2_cpu.parallel import make_mesh
from llama2_cpu.train import compile_step, create_state
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {
    "tiny, 4.6 M": PRESETS["tiny"],
    "20 M": dataclasses.replace(PRESETS["tiny"], width=512, heads=8, kv_heads=8, head_size=64, mlp_width=1408),
}


def ours(config: Config, tokens: np.ndarray):
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
    mesh = make_mesh()
    with jax.set_mesh(mesh):
        state = create_state(config, mesh)
        step = compile_step(state, batch)

    def run() -> None:
        nonlocal state
        state, metrics = step(state, batch)
        float(metrics["train/loss"])

    return run


def theirs(config: Config, tokens: np.ndarray):
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
    model = LlamaForCausalLM(sizes).float()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    inputs, targets = torch.tensor(tokens[:, :-1]).long(), torch.tensor(tokens[:, 1:]).long()

    def run() -> None:
        logits = model(inputs, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10, help="timed steps of each")
    steps = parser.parse_args().steps
    print(f"{'model':12} {'ours':>16} {'transformers':>16} {'ratio':>6}   (tokens/s, medians of {steps} steps in turn)")
    for name, config in SIZES.items():
        tokens = np.random.default_rng(0).integers(
            0, config.vocab_size, (config.batch_size, config.sequence_length + 1), dtype=np.int32
        )
        runs = {"ours": ours(config, tokens), "theirs": theirs(config, tokens)}
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
