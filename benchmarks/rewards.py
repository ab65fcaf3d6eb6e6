"""The reward of GRPO or PPO on sums of one digit, for three seeds, and whether engine and trainer agree.

python benchmarks/rewards.py [--steps 300] [--seeds 3] [--dtype float32] [--ppo] [--plot FILE]

Weaves llama2 for CPUs with the parts rewards and chat_data. A small model first learns from the examples of
demo/sums.py, of which one in four has the right sum in the right form. Then it samples completions itself; one that is
right, and nothing else, has the reward 1. With --ppo the package has the part critic, and a prompt one completion.
Prints the mean reward before the first step, that of the last tenth of the steps, and how far the log-probabilities of
engine and trainer are apart.
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

SIZES = "--width 128 --layers 4 --heads 4 --kv-heads 4 --head-size 32 --mlp-width 384 --sequence-length 24"


def run(folder: Path, command: str) -> None:
    """Runs a module of the package in its folder."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT / "demo")}
    subprocess.run([sys.executable, "-m", *command.split()], cwd=folder, env=environment, check=True, stdout=sys.stderr)


def train(folder: Path, seed: int, given: argparse.Namespace) -> list[dict]:
    """Trains a model on examples, then on rewards; returns the metrics of the second run."""
    parts = "critic" if given.ppo else "rewards", "chat_data"
    for path, text in weave("llama2", "cpu", Library.read([ROOT]), parts=parts).files.items():
        (folder / "llama2_cpu" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "llama2_cpu" / path).write_text(text)
    sums.write(folder, seed, held_out=0)
    common = f"llama2_cpu.train --preset tiny {SIZES} --dtype {given.dtype} --seed {seed} --checkpoint-every 1000"
    common += " --batch-size 64"
    run(folder, f"{common} --data examples.jsonl --steps 200 --learning-rate 3e-3 --checkpoint-dir base")
    run(folder, "llama2_cpu.checkpoint export base hf")
    run(folder, "llama2_cpu.checkpoint import hf tuned")
    tuned = "--objective ppo --group-size 1" if given.ppo else "--objective grpo --group-size 16"
    tuned += " --reward sums:right --data prompts.jsonl --completion-tokens 8"
    run(folder, f"{common} {tuned} --steps {given.steps} --learning-rate 2e-4 --weight-decay 0 --checkpoint-dir tuned")
    lines = (folder / "tuned/metrics.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if "rollout/reward" in line]


def draw(curves: dict[int, list[float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "loomax"  # the same ids in every run
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.5), layout="constrained")
    for seed, rewards in curves.items():
        axes.plot(range(1, len(rewards) + 1), rewards, label=f"seed {seed}", linewidth=1)
    axes.set(xlabel="step", ylabel="mean reward of 64 completions", ylim=(0, 1))
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--ppo", action="store_true")
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    curves = {}
    for seed in range(given.seeds):
        with tempfile.TemporaryDirectory() as folder:
            told = train(Path(folder), seed, given)
        curves[seed] = [line["rollout/reward"] for line in told]
        tenth = max(len(told) // 10, 1)
        first, last = curves[seed][0], statistics.mean(curves[seed][-tenth:])
        mismatch = statistics.mean(line["train/mismatch"] for line in told)
        print(f"seed {seed}: reward {first:.3f} -> {last:.3f}; |log-probability of engine - trainer| {mismatch:.1e}")
    if given.plot:
        draw(curves, given.plot)


if __name__ == "__main__":
    main()
