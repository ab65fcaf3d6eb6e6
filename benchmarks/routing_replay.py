"""How engine and trainer agree on log-probabilities of a mixture of experts, with routing replay and without it.

python benchmarks/routing_replay.py [--first-steps 200] [--steps 20] [--seeds 0 1 2] [--dtype bfloat16] [--experts 32]

Weaves qwen3_moe for CPUs, with the part routing_replay and without it. A small model with 4 of so many experts in each
of 4 layers learns from the examples of demo/sums.py, and then from rewards; both packages begin with the same weights.
Prints the mean of train/mismatch, over steps that each have a rollout of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = str(ROOT), str(ROOT / "demo")

import sums  # noqa: E402

from generator.recipe.library import Library  # noqa: E402
from generator.weaver import weave  # noqa: E402

PARTS = {"without": ("rewards", "chat_data"), "with": ("routing_replay", "chat_data")}
SIZES = "--width 128 --layers 4 --heads 4 --kv-heads 4 --head-size 32 --expert-width 64 --experts-per-token 4"


def run(folder: Path, command: str) -> None:
    """Runs a module of the package in its folder."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT / "demo")}
    subprocess.run([sys.executable, "-m", *command.split()], cwd=folder, env=environment, check=True, stdout=sys.stderr)


def mismatches(folder: Path, seed: int, given: argparse.Namespace) -> dict[str, float]:
    """Trains a model on examples, and then on rewards by both packages; returns their mean mismatch (nats)."""
    library = Library.read([ROOT])
    found = {}
    for name, parts in PARTS.items():
        place = folder / name
        for path, text in weave("qwen3_moe", "cpu", library, parts=parts).files.items():
            (place / "qwen3_moe_cpu" / path).parent.mkdir(parents=True, exist_ok=True)
            (place / "qwen3_moe_cpu" / path).write_text(text)
        sums.write(place, seed, held_out=0)
        common = f"qwen3_moe_cpu.train --preset tiny {SIZES} --experts {given.experts} --dtype {given.dtype} "
        common += f"--sequence-length 24 --seed {seed} --checkpoint-every 1000 --batch-size 64"
        if not found:
            first = f"--data examples.jsonl --steps {given.first_steps} --learning-rate 3e-3 --checkpoint-dir base"
            run(place, f"{common} {first}")
            run(place, "qwen3_moe_cpu.checkpoint export base ../hf")
        run(place, "qwen3_moe_cpu.checkpoint import ../hf tuned")
        tuned = "--objective grpo --reward sums:right --data prompts.jsonl --completion-tokens 8 --group-size 16"
        run(
            place,
            f"{common} {tuned} --steps {given.steps} --learning-rate 2e-4 --weight-decay 0 --checkpoint-dir tuned",
        )
        lines = map(json.loads, (place / "tuned/metrics.jsonl").read_text().splitlines())
        found[name] = statistics.mean(line["train/mismatch"] for line in lines if "train/mismatch" in line)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first-steps", type=int, default=200)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--experts", type=int, default=32)
    given = parser.parse_args()
    for seed in given.seeds:
        with tempfile.TemporaryDirectory() as folder:
            found = mismatches(Path(folder), seed, given)
        print(f"seed {seed}: " + ", ".join(f"{name} replay {value:.2e}" for name, value in found.items()), flush=True)


if __name__ == "__main__":
    main()
