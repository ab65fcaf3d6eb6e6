"""Training steps compiled for TPUs that are not here: cycles by the compiler's estimate, memory, and what they call.

python benchmarks/programs.py [NAME ...] [--quick] [--keep FOLDER]     prints a table; minutes each, exit code 1: missed

Needs jax[tpu], and no TPU. Cycles are those that the compiler wrote into the program, added up over a step of one chip:
a loop's body counts as often as it runs. Kernels of Pallas have no estimate: compare programs that call as many.
--quick: six layers, which says nothing about the bars. --keep: leaves the programs' texts in that folder.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

GENERATED = Path(__file__).resolve().parents[1] / "generated"
BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "f32": 4, "s32": 4, "u32": 4}
COMPUTATION = r"^(ENTRY )?%?([\w.\-]+) \(.*\{\n((?:.*\n)*?)\}(?:, .*)?\n(?=\n|\Z)"  # entry or not, name, instructions
INSTRUCTION = r"\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z\-]+)\("  # name, shape, kind
COLLECTIVES = "all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute", "ragged-all-to-all"


@dataclasses.dataclass(frozen=True)
class Program:
    flags: str  # of the package's compile command, after the name of the package
    cycles: float = math.inf  # the bars: at most so many of a step,
    gib: float = 95  # of a chip,
    calls: float = math.inf  # and calls of attention kernels, or of grouped products


LLAMA_7B = "llama2_tpu --preset 7b --topology v5p:8x8x4"
LLAMA_70B = "llama2_tpu --preset 70b --topology v5p:8x8x8 --batch-per-device 2"
QWEN_30B = "qwen3_moe_tpu --preset 30b-a3b --topology v5p:8x8x8 --batch-per-device 2 --sequence-length 16384"
PROGRAMS = {
    "7b": Program(LLAMA_7B, 2.95e9, calls=64),
    "7b-16gib": Program(f"{LLAMA_7B} --remat out", 3.55e9, 16),
    "70b": Program(f"{LLAMA_70B} --remat attention,gate", 16.4e9),
    "70b-24gib": Program(f"{LLAMA_70B} --remat key_value", 17.1e9, 24),
    "30b-a3b": Program(QWEN_30B, 4.4e9, calls=576),
    "gemma3-27b": Program("gemma3_tpu --preset 27b --topology v5p:8x8x4 --batch-per-device 4 --remat attention"),
}


@dataclasses.dataclass
class Cost:
    cycles: int = 0
    calls: Counter = dataclasses.field(default_factory=Counter)  # of Pallas kernels, by name
    moved: dict = dataclasses.field(default_factory=dict)  # (kind, channel) of a collective -> bytes of its result

    def add(self, other: Cost, times: int, cycles: bool = True) -> None:
        self.cycles += times * other.cycles * cycles
        for name, count in other.calls.items():
            self.calls[name] += times * count
        for key, size in other.moved.items():  # the parts of an asynchronous collective have one channel
            self.moved[key] = max(self.moved.get(key, 0), times * size)


def array_bytes(shape: str) -> int:
    found = re.findall(r"\b([a-z]+\d*)\[([\d,]*)\]", shape)
    return sum(BYTES.get(kind, 0) * math.prod(map(int, filter(None, sides.split(",")))) for kind, sides in found)


def program_cost(text: str) -> Cost:
    """Of one run: each computation's instructions, and those of what they call."""
    bodies, entry = {}, ""
    for start, name, body in re.findall(COMPUTATION, text, re.M):
        bodies[name], entry = body.splitlines(), name if start else entry

    @functools.cache
    def cost(name: str) -> Cost:
        total = Cost()
        for line in bodies.get(name, ()):
            if not (found := re.match(INSTRUCTION, line)):
                continue
            (result, shape, kind), estimate = found.groups(), re.search(r'"estimated_cycles":"(\d+)"', line)
            base, total.cycles = kind.removesuffix("-start"), total.cycles + int(estimate[1] if estimate else 0)
            if kind == "while":
                body, condition = (re.search(rf"{x}=%?([\w.\-]+)", line)[1] for x in ("body", "condition"))
                known = re.findall(r"known_trip_count[^0-9]*(\d+)", line)
                bounds = known or re.findall(r"constant\((\d+)\)", "\n".join(bodies[condition]))
                total.add(cost(body), max(map(int, bounds), default=1))
            elif kind in ("fusion", "call", "conditional", "async-start"):
                for callee in re.findall(r"(?:calls|to_apply)=%?([\w.\-]+)", line):
                    total.add(cost(callee), 1, cycles=not estimate)
            elif base in COLLECTIVES:
                key = base, *(re.findall(r"channel_id=(\d+)", line)[:1] or [result])
                size = array_bytes(shape.split("), ")[-1] if kind != base else shape)
                if name.startswith("all-reduce-scatter"):  # libtpu's reduce-scatter: what it keeps comes last
                    key, size = ("reduce-scatter", *key[1:]), array_bytes(re.match(INSTRUCTION, bodies[name][-1])[2])
                total.moved[key] = max(total.moved.get(key, 0), size)
            elif kind == "custom-call" and "tpu_custom_call" in line:
                total.calls[re.sub(r"[.\d]+$", "", result)] += 1
        return total

    return cost(entry)


def columns(text: str) -> list[str]:
    """Cycles, attention kernels, grouped products, GiB by collectives, and the largest array."""
    cost = program_cost(text)
    moved = {kind: sum(x for key, x in cost.moved.items() if key[0] == kind) / 2**30 for kind, _ in cost.moved}
    attention = sum(count for name, count in cost.calls.items() if "splash" in name)
    grouped = sum(count for name, count in cost.calls.items() if name.startswith("ragged-dot") and "meta" not in name)
    sent = ", ".join(f"{kind} {size:.1f}" for kind, size in sorted(moved.items()))
    text = re.sub(r"^%fused(.*\n)*?\}\n", "", text, flags=re.M)  # what a fusion has inside takes no memory
    largest = max(re.findall(r"^\s+(?:ROOT )?%?[\w.\-]+ = ([a-z]+\d+\[[\d,]*\])", text, re.M), key=array_bytes)
    largest += f" {array_bytes(largest) / 2**30:.1f} GiB"
    return [f"{cost.cycles / 1e9:.3f}e9", str(attention), str(grouped), sent, largest]


def row(name: str, program: Program, hlo: Path, quick: bool) -> tuple[list[str], bool]:
    """What the table says of a program, and whether it misses a bar."""
    package, *flags = f"{program.flags} --layers 6".split() if quick else program.flags.split()
    command = sys.executable, "-m", f"{package}.compile", *flags, "--hlo", str(hlo)
    process = subprocess.run(command, cwd=GENERATED, capture_output=True, text=True)
    if not (found := re.search(r"total ([\d,]+)$", process.stdout, re.M)):
        return [name, " ".join(process.stderr.split()[-60:])], True
    gib, (cycles, attention, grouped, *rest) = int(found[1].replace(",", "")) / 2**30, columns(hlo.read_text())
    over = float(cycles) > program.cycles or gib > program.gib or max(int(attention), int(grouped)) > program.calls
    bar = f"{program.cycles / 1e9:.2f}e9, {program.gib} GiB, {program.calls} calls".replace("inf", "?")
    return [name, f"{gib:.1f}", cycles, bar, attention, grouped, *rest], over and not quick


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROGRAMS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--keep", type=Path, help="a folder that is there")
    given, missed, os.environ["JAX_PLATFORMS"] = parser.parse_args(), False, "cpu"
    if not PROGRAMS.keys() >= set(given.names):
        parser.error(f"NAME is one of {', '.join(PROGRAMS)}")
    print(
        "| program | GiB | cycles | bar | attention kernels | grouped products | sent | largest |\n" + "|---" * 8 + "|"
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = (given.keep or Path(scratch)).absolute()
        for name in given.names or PROGRAMS:
            cells, over = row(name, PROGRAMS[name], folder / f"{name}.hlo", given.quick)
            print(f"| {' | '.join(cells)} |", flush=True)
            missed |= over
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
