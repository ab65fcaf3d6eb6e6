"""Rollouts of GRPO: completions a second of the engine against transformers' generate, in one run.

python benchmarks/rollouts.py [--sizes "20 M"] [--groups 8] [--group-size 8]

Prompts and completions have log-normal lengths; a group has one prompt. Both sides sample at temperature 1 in fp32, on
all cores. The engine has all requests at once, and compiles what it needs in a first rollout, which is not timed, as
training repeats it. transformers gets whole groups, in the batch size that is best for it, padded on the left, each
until its longest completion.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
from flax import nnx
from serving import SIZES, lengths  # beside this file
from transformers import LlamaForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "generated"))

from llama2_cpu import Decoder, config, engine, huggingface

Group = tuple[list[int], list[int]]  # a prompt, and the lengths of its completions


def ours(settings: Any, model: Decoder, groups: list[Group], count: int) -> float:
    sizes = engine.EngineSettings(max_sequences=64, max_length=1024)
    runner = engine.Engine(settings, model, set(), sizes)
    begin = time.perf_counter()
    for i in range(count):
        for prompt, most in groups:
            runner.add(prompt, engine.SamplingParams(max_tokens=most[i], temperature=1.0, seed=i, ignore_eos=True))
    while runner.queued or runner.running:
        runner.step()
    return time.perf_counter() - begin


def theirs(model: LlamaForCausalLM, groups: list[Group], size: int) -> float:
    rows = [(prompt, one) for prompt, most in groups for one in most]
    begin = time.perf_counter()
    for start in range(0, len(rows), size):
        batch = rows[start : start + size]
        longest, most = max(len(prompt) for prompt, _ in batch), max(one for _, one in batch)
        ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt, _ in batch])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt, _ in batch])
        chosen = dict(max_new_tokens=most, min_new_tokens=most, do_sample=True, temperature=1.0, top_k=0)
        model.generate(ids, attention_mask=mask, pad_token_id=0, **chosen)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=[*SIZES], choices=[*SIZES])
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=8)
    given = parser.parse_args()
    for name in given.sizes:
        rng = np.random.default_rng(0)
        prompts = [rng.integers(3, 250, n).tolist() for n in lengths(rng, 100, 512, given.groups)]
        groups = [(prompt, lengths(rng, 100, 256, given.group_size).tolist()) for prompt in prompts]
        settings = dataclasses.replace(config.PRESETS["tiny"], **SIZES[name], context_length=2048, dtype="float32")
        model = jax.jit(lambda settings=settings: Decoder(settings, nnx.Rngs(0)))()
        with tempfile.TemporaryDirectory() as folder:
            huggingface.save_hf(settings, model, Path(folder) / "hf")
            peer = LlamaForCausalLM.from_pretrained(f"{folder}/hf", dtype="float32").eval()
        ours(settings, model, groups, given.group_size)
        seconds = ours(settings, model, groups, given.group_size)
        count = given.groups * given.group_size
        rates = {size: count / theirs(peer, groups, size) for size in (8, 16, 32, 64)}
        best = max(rates, key=rates.__getitem__)
        rate = f"{count / seconds:.2f} completions a second; transformers {rates[best]:.2f}, in batches of {best}"
        print(f"{name}: {rate}: {count / seconds / rates[best]:.2f}x", flush=True)


if __name__ == "__main__":
    main()
