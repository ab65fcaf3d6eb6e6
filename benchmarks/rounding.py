"""How far log-probabilities are off that a server gives in fewer bits, on a text of one's own.

python benchmarks/rounding.py TEXT (--checkpoint-dir DIR | --hf DIR) [--package llama2_cpu] [--length TOKENS]

Scores the text, in parts, by the package's engine: in fp32, and in what a server can be asked for instead. Prints the
mean log-probability of a token, and the mean and the largest difference from that of fp32, in nats.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "generated"))

import numpy as np

WAYS = {  # what --dtype, --int8 and --int8-kv-cache are
    "fp32": ("float32", False, False),
    "fp32, int8 pages": ("float32", False, True),
    "bf16": ("bfloat16", False, False),
    "bf16, int8 pages": ("bfloat16", False, True),
    "bf16, int8 kernels": ("bfloat16", True, False),
    "bf16, int8 kernels and pages": ("bfloat16", True, True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--checkpoint-dir", default="")
    parser.add_argument("--hf", default="")
    parser.add_argument("--package", default="llama2_cpu")
    parser.add_argument("--length", type=int, default=254)
    given = parser.parse_args()
    if not given.text.is_file() or not given.text.stat().st_size:
        parser.error(f"{given.text}: give a file with some text")
    with importlib.import_module(f"{given.package}.errors").ending_with_messages():
        compare(given)


def compare(given: argparse.Namespace) -> None:
    engine, tokenizer, weights = (
        importlib.import_module(f"{given.package}.{name}") for name in ("engine", "tokenizer", "weights")
    )
    exact = None
    for name, (dtype, int8, int8_kv_cache) in WAYS.items():
        config, model, mesh = weights.load_to_serve(
            weights.ModelSettings(checkpoint_dir=given.checkpoint_dir, hf=given.hf, dtype=dtype, int8=int8)
        )
        tokens = tokenizer.load_tokenizer(config.tokenizer)
        ids, n = tokens.encode(given.text.read_text()), given.length
        prompts = [[tokens.bos, *ids[i : i + n]] for i in range(0, min(len(ids), 16 * n), n)]
        settings = engine.EngineSettings(max_sequences=4, max_length=n + 2, int8_kv_cache=int8_kv_cache, chunk=64)
        subject = engine.Engine(config, model, set(), settings, mesh)
        requests = subject.generate(prompts, engine.SamplingParams(max_tokens=1, prompt_logprobs=True))
        scores = np.concatenate([request.prompt_logprobs for request in requests])
        exact = scores if exact is None else exact
        off = np.abs(scores - exact)
        print(f"{name:30} {scores.mean():.4f}  off by {off.mean():.4f}, at most {off.max():.4f}", flush=True)


if __name__ == "__main__":
    main()
