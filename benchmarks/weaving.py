"""Speed of gen itself: python benchmarks/weaving.py [--runs N]

Whole processes: a package built with nothing there (cold), the same with nothing changed (warm), `gen check` on all
committed packages, and all packages cold, in parallel. And within a process: a package woven again, which is what a
test or a server waits for. CPU is that of the process and of those that it starts. Medians with the least and the
most; machines are noisy, so each is also given as a multiple of `python -c pass` in the same run.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
GEN = [sys.executable, "-m", "generator"]
# an installed program has its bytecode beside it
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
AGAIN = """
import time
from generator.disk.project import Project
from generator.weaver import weave
library = Project.find().library()
weave("llama2", "tpu", library)
wall, cpu = time.perf_counter(), time.process_time()
weave("llama2", "tpu", library)
print(time.perf_counter() - wall, time.process_time() - cpu)
"""


class Times(NamedTuple):
    """Seconds of one run."""

    wall: float
    cpu: float


def measured(command: list[str], runs: int, before=lambda: None) -> list[Times]:
    """Times of whole processes, after one that does not count."""
    times = []
    for _ in range(runs + 1):
        before()
        start, used = time.perf_counter(), _children()
        subprocess.run(command, check=True, cwd=ROOT, env=ENVIRONMENT, capture_output=True)
        times.append(Times(time.perf_counter() - start, _children() - used))
    return times[1:]


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def printed(script: str, runs: int) -> list[Times]:
    """Times that a script prints."""
    command = [sys.executable, "-c", script]
    outputs = [subprocess.run(command, check=True, cwd=ROOT, capture_output=True).stdout for _ in range(runs)]
    return [Times(*map(float, output.split())) for output in outputs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each command")
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        one = [*GEN, "build", "llama2", "--target=tpu", "--out", str(out)]
        everything = [*GEN, "build", "--all", "--out", str(out)]

        def remove() -> None:
            shutil.rmtree(out, ignore_errors=True)

        rows = {
            "python -c pass": measured([sys.executable, "-c", "pass"], runs),
            "gen build, one package, cold": measured(one, runs, remove),
            "gen build, one package, warm": measured(one, runs),
            "woven again in one process": printed(AGAIN, runs),
            "gen check, nothing changed": measured([*GEN, "check"], runs),
            "gen build --all, cold": measured(everything, runs, remove),
        }
    base = statistics.median(times.cpu for times in rows["python -c pass"])
    print(f"{'':30}{'CPU':>8}{'min':>8}{'max':>8}{'x python':>10}{'wall':>8}{'min':>8}{'max':>8}")
    for name, times in rows.items():
        cpu, wall = sorted(run.cpu for run in times), sorted(run.wall for run in times)
        middle = statistics.median(cpu)
        print(f"{name:30}{middle:7.2f}s{cpu[0]:7.2f}s{cpu[-1]:7.2f}s{middle / base:10.1f}", end="")
        print(f"{statistics.median(wall):7.2f}s{wall[0]:7.2f}s{wall[-1]:7.2f}s")


if __name__ == "__main__":
    main()
