"""Fronts of memory and time: a model's step compiled for TPUs with each value of --remat, by Loomax and by MaxText.

python benchmarks/fronts.py MODEL --keep FOLDER [--python PYTHON] [--image FILE]     prints a table

PYTHON is one that has jax[tpu], maxtext[tpu] and what a package needs, so that both are compiled with the same
libraries; no TPU is needed. Seconds are by the model of docs/plan.md, read from both programs. MaxText sums gradients
over chips in bfloat16; a package does with --gradient-dtype bfloat16, and else in float32: both are compiled. Points
that FOLDER has are not compiled again. At 16, 32, 64 and 90 GiB the table has the fastest program of each that fits.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMITS = 16, 32, 64, 90  # GiB of a device
ENVIRONMENT = dict(os.environ)  # without what libtpu adds, which would make PYTHON load this interpreter's own


@dataclasses.dataclass(frozen=True)
class Model:
    package: str
    flags: str  # of the package's compile command
    remat: tuple[str, ...]
    peer: str  # settings of MaxText for the same step
    policies: tuple[str, ...]  # values of remat_policy, or of the tensors that are kept


EXPERTS = "moe_mlpwi_0", "moe_mlpwi_1", "moe_mlpwo"
NAMES = "query_proj", "key_proj", "value_proj", "context", "out_proj", "mlpwi_0", "mlpwi_1", "mlpwo", *EXPERTS
KEPT = (
    *("full", "minimal_with_context", "query_proj,key_proj,value_proj,context,out_proj,mlpwi_0"),
    *("context", "context,out_proj,mlpwi_0,mlpwi_1", "save_qkv_proj"),
)
REMAT = ("full", "out", "context", "context,gate", "attention", "attention,gate", "attention,gate,out", "dots")
MODELS = {
    "7b": Model(
        "llama2_tpu",
        "--preset 7b --topology v5p:8x8x4 --batch-size 1024",
        REMAT,
        "model_name=llama2-7b compile_topology=v5p-512 per_device_batch_size=4",
        KEPT,
    ),
    "70b": Model(
        "llama2_tpu",
        "--preset 70b --topology v5p:8x8x8 --batch-size 1024",
        ("full", "context", "context,gate", "attention", "attention,gate", "attention,gate,out"),
        "model_name=llama2-70b compile_topology=v5p-1024 per_device_batch_size=2 "
        "ici_data_parallelism=1 ici_fsdp_parallelism=512",
        ("full", "context", "context,mlpwi_0", "query_proj,key_proj,value_proj,context,out_proj,mlpwi_0"),
    ),
    "30b-a3b": Model(
        "qwen3_moe_tpu",
        "--preset 30b-a3b --topology v5p:8x8x8 --batch-size 1024",
        ("full", "context", "dots"),
        "model_name=qwen3-30b-a3b compile_topology=v5p-1024 per_device_batch_size=2 "
        "ici_data_parallelism=1 ici_fsdp_parallelism=512",
        ("full", "context", "query_proj,key_proj,value_proj,context,out_proj,moe_mlpwi_0,moe_mlpwi_1"),
    ),
}


def ours(model: Model, remat: str, hlo: Path, python: str, folder: Path, sums: str = "float32") -> str:
    flags = *model.flags.split(), "--remat", remat, "--gradient-dtype", sums, "--hlo", str(hlo)
    command = [python, "-m", f"{model.package}.compile", *flags]
    process = subprocess.run(
        command, cwd=folder, env=ENVIRONMENT | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True
    )
    found = re.search(r"total ([\d,]+)", process.stdout)
    return str(int(found[1].replace(",", "")) / 2**30) if found else process.stderr[-300:]


def theirs(model: Model, policy: str, hlo: Path, python: str, folder: Path) -> str:
    settings = [f"remat_policy={policy}"]
    if set(policy.split(",")) <= set(NAMES):
        settings = ["remat_policy=custom", "decoder_layer_input=device", *(f"{x}=device" for x in policy.split(","))]
    command = [python, str(ROOT / "benchmarks/peers/maxtext.py"), *model.peer.split(), *settings, "--hlo", str(hlo)]
    process = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    found = re.search(r"^\| maxtext [\d.]+ \| ([\d.]+)", process.stdout, re.MULTILINE)
    return found[1] if found else process.stderr[-300:]


def points(model: Model, name: str, arguments: argparse.Namespace, package: Path) -> list[dict]:
    """Returns side, what is kept, GiB, and seconds by part of every program that compiles."""
    sys.path[:0] = [str(package)]
    compile_, cost, config = (importlib.import_module(f"{model.package}.{x}") for x in ("compile", "cost", "config"))
    flags = dict(zip(*[iter(model.flags.replace("--", "").split())] * 2, strict=True))
    chip = flags["topology"].partition(":")[0]
    mesh = compile_.topology_mesh(config.PRESETS[flags["preset"]], flags["topology"], 1)
    found = []
    alike = functools.partial(ours, sums="bfloat16")
    ways = [(side, way, kept) for kept in model.remat for side, way in (("ours-bf16", alike), ("ours", ours))]
    for side, way, kept in [*ways, *(("maxtext", theirs, kept) for kept in model.policies)]:
        hlo = arguments.keep / f"{name}-{side}-{kept}.hlo"
        if not (said := hlo.with_suffix(".gib")).exists():
            said.write_text(way(model, kept, hlo, arguments.python, package))
        try:
            gib = float(said.read_text())
        except ValueError:
            print(f"{side} {kept}: {said.read_text().strip().splitlines()[-1:]}", file=sys.stderr)
            continue
        parts = cost.step_cost(hlo.read_text(), compile_.CHIPS[chip], cost.places(mesh))
        found.append({"side": side, "kept": kept, "gib": gib, "seconds": parts.seconds, **parts.parts})
        print("| {side} | {kept} | {gib:.1f} | {seconds:.3f} |".format(**found[-1]), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--image", type=Path)
    arguments = parser.parse_args()
    model = MODELS[arguments.model]
    arguments.keep = arguments.keep.resolve()
    arguments.keep.mkdir(parents=True, exist_ok=True)
    architecture, _, target = model.package.rpartition("_")
    build = [sys.executable, "-m", "generator", "build", architecture, f"--target={target}", "--with", "plan"]
    subprocess.run([*build, "--out", str(arguments.keep)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    print("| by | what is kept | GiB | seconds |\n|---|---|---|---|")
    found = points(model, arguments.model, arguments, arguments.keep)
    sides = {side: [x for x in found if x["side"] == side] for side in ("ours", "ours-bf16", "maxtext")}
    print("\n| GiB | ours, sums in fp32 | ours, in bf16 | MaxText, in bf16 | MaxText / ours in bf16 |")
    print("|---|---|---|---|---|")
    for limit in LIMITS:
        best = [min((x["seconds"] for x in side if x["gib"] <= limit), default=None) for side in sides.values()]
        cells = ["nothing fits" if x is None else f"{x:.3f}" for x in best]
        ratio = "" if None in best else f"{best[2] / best[1]:.2f}"
        print(f"| {limit} | {' | '.join(cells)} | {ratio} |")
    if arguments.image:
        draw(sides, arguments.image, arguments.model)


def draw(sides: dict[str, list[dict]], image: Path, name: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    middle = max(x["gib"] for found in sides.values() for x in found) / 2
    labels = "ours, sums in fp32", "ours, in bf16", "MaxText, in bf16"
    for found, color, label in zip(sides.values(), ("tab:blue", "tab:green", "tab:orange"), labels, strict=True):
        axes.plot([x["gib"] for x in found], [x["seconds"] for x in found], "o", color=color, alpha=0.4)
        front = [x for x in found if not any(y["gib"] <= x["gib"] and y["seconds"] < x["seconds"] for y in found)]
        front.sort(key=lambda x: x["gib"])
        axes.step([x["gib"] for x in front], [x["seconds"] for x in front], where="post", color=color, label=label)
        for x in front:
            side = "left" if x["gib"] < middle else "right"
            axes.annotate(x["kept"], (x["gib"], x["seconds"]), fontsize=7, color=color, ha=side, va="bottom")
    axes.set(xlabel="GiB of a device", ylabel="seconds of a step, predicted", title=name)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(image)


if __name__ == "__main__":
    main()
