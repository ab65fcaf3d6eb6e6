"""Peak memory of import and export, beside the size of the checkpoint: a Llama of random weights, in several shards.

python benchmarks/memory.py [--gib 1] [--package llama2_cpu] [--dtype float32]          prints a table; minutes

Memory is the largest resident set of the process, less that of one which only imports the package.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

GENERATED = Path(__file__).resolve().parents[1] / "generated"
WIDTH, MLP, VOCAB = 1024, 2816, 32_000


def make_checkpoint(folder: Path, gib: float, dtype: str) -> int:
    """Writes a Llama of about so many GiB, a file for each four layers, and returns its bytes."""
    rng, names, kind = np.random.default_rng(0), {}, np.dtype(getattr(ml_dtypes, dtype, dtype))

    def write(file: str, shapes: dict[str, tuple[int, ...]]) -> int:
        tensors = {name: rng.standard_normal(shape, np.float32).astype(kind) for name, shape in shapes.items()}
        save_file(tensors, folder / file, {"format": "pt"})
        names.update(dict.fromkeys(tensors, file))
        return sum(x.nbytes for x in tensors.values())

    ends = {"model.norm.weight": (WIDTH,)}
    ends |= {"model.embed_tokens.weight": (VOCAB, WIDTH), "lm_head.weight": (VOCAB, WIDTH)}
    layer = {f"self_attn.{x}_proj.weight": (WIDTH, WIDTH) for x in "qkvo"}
    layer |= {f"mlp.{x}_proj.weight": (MLP, WIDTH) for x in ("gate", "up")} | {"mlp.down_proj.weight": (WIDTH, MLP)}
    layer |= {"input_layernorm.weight": (WIDTH,), "post_attention_layernorm.weight": (WIDTH,)}
    layers = round((gib * 2**30 / kind.itemsize - 2 * VOCAB * WIDTH) / sum(map(np.prod, layer.values())))
    size = write("model-0.safetensors", ends)
    for first in range(0, layers, 4):
        shapes = {f"model.layers.{i}.{x}": s for i in range(first, min(first + 4, layers)) for x, s in layer.items()}
        size += write(f"model-{first + 1}.safetensors", shapes)
    config = {"model_type": "llama", "hidden_size": WIDTH, "intermediate_size": MLP, "vocab_size": VOCAB}
    config |= {"num_hidden_layers": layers, "num_attention_heads": WIDTH // 64, "max_position_embeddings": 4096}
    config |= {"hidden_act": "silu", "rms_norm_eps": 1e-5, "initializer_range": 0.02, "torch_dtype": dtype}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    return size


# what a process had at most, which rusage would mix with what its parent had
RUN = """
import pathlib, re, runpy, sys
try:
    runpy.run_module(sys.argv.pop(1) + ".checkpoint", run_name=sys.argv.pop(1), alter_sys=True)
finally:
    print(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
"""


def peak(*arguments: object) -> int:
    """The bytes that Python with these arguments had at most."""
    process = subprocess.run(
        [sys.executable, "-c", RUN, *map(str, arguments)],
        env=os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(GENERATED)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return int(process.stdout) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--package", default="llama2_cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "hf").mkdir()
        size = make_checkpoint(folder / "hf", options.gib, options.dtype)
        idle = peak(options.package, "idle")
        print("| what | peak MiB | less the idle MiB | of the checkpoint |\n|---|---:|---:|---:|")
        print(f"| idle, {size / 2**20:.0f} MiB to read | {idle / 2**20:.0f} | | |")
        for what, *arguments in (["import", "hf", "run"], ["export", "run", "ours", "--dtype", options.dtype]):
            paths = [folder / x if x in ("hf", "run", "ours") else x for x in arguments]
            most = peak(options.package, "__main__", what, *paths)
            ours = most - idle
            print(f"| {what} | {most / 2**20:.0f} | {ours / 2**20:.0f} | {ours / size:.2f} |", flush=True)


if __name__ == "__main__":
    main()
