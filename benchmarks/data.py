"""Speed of the data pipeline alone, of llama2_cpu: tokens that count for the loss, in a second, and how it starts.

python benchmarks/data.py [--seconds N] [--package FOLDER] [--rows N ...]    FOLDER holds llama2_cpu, maybe an older one

The corpus is every eighth file of Python's standard library, once and ten times, as JSONL; the tokenizer a BPE of
32,000 tokens trained on it. Each line is of a process of its own; seconds of processors count on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

GENERATED = Path(__file__).resolve().parents[1] / "generated"

# prints the seconds until all rows are open and until the first batch, and of the processors for that; tokens/s and
# per second of a processor; threads
PIPELINE = """
import dataclasses, os, sys, time
import jax
from llama2_cpu.config import PRESETS
from llama2_cpu.data import Batches
data, tokenizer, seconds, rows = *sys.argv[1:3], float(sys.argv[3]), int(sys.argv[4])
sizes = dict(vocab_size=32_000, sequence_length=2048, batch_size=rows)
config = dataclasses.replace(PRESETS["tiny"], data=data, tokenizer=tokenizer, **sizes)
mesh = jax.make_mesh((1,), ("x",))
start, started = time.perf_counter(), time.process_time()
batches = Batches(config, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))
opened = time.perf_counter()
next(batches)
begin, busy, tokens = time.perf_counter(), time.process_time(), 0
while time.perf_counter() < begin + seconds:
    tokens += next(batches)["weights"].sum()
spent = time.perf_counter() - begin
threads = len(os.listdir("/proc/self/task"))
each = tokens / (time.process_time() - busy)
print(opened - start, begin - start, busy - started, tokens / spent, each, threads, flush=True)
os._exit(0)
"""


def write_corpus(folder: Path, times: int) -> Path:
    path, library = folder / f"{times}.jsonl", Path(sysconfig.get_path("stdlib"))
    files = [file for file in sorted(library.rglob("*.py")) if "site-packages" not in file.parts]
    lines = [json.dumps({"text": file.read_text(errors="replace")}) + "\n" for file in files[::8]]
    path.write_text("".join(lines * times))
    return path


def train_tokenizer(corpus: Path, path: Path) -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=32_000, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    with corpus.open() as lines:
        tokenizer.train_from_iterator((json.loads(line)["text"] for line in lines), trainer)
    tokenizer.save(str(path))
    return path


def run(package: Path, *arguments: object) -> str:
    command = [sys.executable, *map(str, arguments)]
    settings = os.environ | {"JAX_PLATFORMS": "cpu"}
    return subprocess.run(command, cwd=package, env=settings, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement")
    parser.add_argument("--package", type=Path, default=GENERATED, help="the folder that holds llama2_cpu")
    parser.add_argument("--rows", type=int, nargs="+", default=[8, 1024, 4096], help="of a batch")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpora = {f"JSONL, {times} x": write_corpus(folder, times) for times in (1, 10)}
        tokenizer = train_tokenizer(folder / "1.jsonl", folder / "tokenizer.json")
        if (arguments.package / "llama2_cpu/tokenizer.py").exists():  # one that can prepare
            for times in (1, 10):
                start, out = time.perf_counter(), folder / f"prepared-{times}"
                source = folder / f"{times}.jsonl"
                run(arguments.package, "-m", "llama2_cpu.data", "prepare", source, out, "--tokenizer", tokenizer)
                seconds, corpora[f"prepared, {times} x"] = time.perf_counter() - start, out
                print(f"prepared {source.stat().st_size / 1e6:.0f} MB in {seconds:.1f} s")
        print(f"load of the machine {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")
        names = f"{'open s':>7} {'first s':>8} {'CPU s':>7} {'Mtok/s':>7} {'Mtok/CPU s':>10} {'threads':>8}"
        print(f"{'data':16} {'rows':>5} {names}")
        for title, data in corpora.items():
            for rows in arguments.rows:
                found = run(arguments.package, "-c", PIPELINE, data, tokenizer, arguments.seconds, rows)
                opened, first, busy, speed, each, threads = map(float, found.split())
                times = f"{opened:7.2f} {first:8.2f} {busy:7.2f}"
                print(f"{title:16} {rows:5} {times} {speed / 1e6:7.2f} {each / 1e6:10.2f} {threads:8.0f}", flush=True)


if __name__ == "__main__":
    main()
