"""Losses of 20 M parameters trained with products in bf16, fp8 and int8: the same seed, data and order.

python benchmarks/low_precision.py [--steps 200] [--batch-size 2] [--sequence-length 128] [--runs DIR] [--plot FILE]

Weaves llama2 for CPUs without a part and with each part that decides on products, and trains on Python's standard
library. Prints the mean training loss of the last tenth of the steps, the loss on held-out data after the last step,
and by how much they differ from those of bf16. CPUs emulate fp8, so times say nothing. A run that is in --runs is not
made again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from generator.recipe.library import Library  # noqa: E402
from generator.weaver import weave  # noqa: E402

SIZES = "--width 512 --heads 8 --kv-heads 8 --head-size 64 --mlp-width 1408"  # of the tiny preset's 6 layers: 19.3 M
WAYS = {"bf16": (), "fp8": ("fp8",), "int8": ("int8",)}


def train(parts: tuple[str, ...], folder: Path, given: argparse.Namespace) -> list[dict]:
    """Trains a package with these parts; returns the records of its metrics."""
    for path, text in weave("llama2", "cpu", Library.read([ROOT]), parts=parts).files.items():
        (folder / "llama2_cpu" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "llama2_cpu" / path).write_text(text)
    flags = f"--preset tiny {SIZES} --dtype bfloat16 --steps {given.steps} --checkpoint-every {given.steps} "
    flags += f"--batch-size {given.batch_size} --sequence-length {given.sequence_length} --eval-every {given.steps} "
    command = [sys.executable, "-m", "llama2_cpu.train", *flags.split(), "--checkpoint-dir", str(folder / "run")]
    subprocess.run(command, cwd=folder, env=os.environ | {"JAX_PLATFORMS": "cpu"}, check=True, stdout=sys.stderr)
    return [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]


def draw(curves: dict[str, list[float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "loomax"  # the same ids in every run
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.5), layout="constrained")
    for name, losses in curves.items():
        axes.plot(range(1, len(losses) + 1), losses, label=name, linewidth=1)
    axes.set(xlabel="step", ylabel="training loss")
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--sequence-length", type=int, default=128)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS])
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "low_precision")
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    curves, base = {}, None
    for name in given.ways:
        records = train(WAYS[name], given.runs.resolve() / "_".join(WAYS[name] or ("bf16",)), given)
        curves[name] = [record["train/loss"] for record in records if "train/loss" in record]
        last = statistics.mean(curves[name][-max(1, given.steps // 10) :])
        held_out = next(record["eval/loss"] for record in reversed(records) if "eval/loss" in record)
        base = base or (last, held_out)
        off = [f"{value / reference - 1:+.2%}" for value, reference in zip((last, held_out), base, strict=True)]
        print(f"{name:22} training {last:.4f} {off[0]}  held-out {held_out:.4f} {off[1]}", flush=True)
    if given.plot:
        draw(curves, given.plot)


if __name__ == "__main__":
    main()
