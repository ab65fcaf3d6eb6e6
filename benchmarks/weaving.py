"""Speed of gen itself, in whole processes: python benchmarks/weaving.py [--packages N] [--runs N]

A package woven with nothing there (cold), the same with nothing changed (warm), `gen check` on all committed packages,
and all packages cold in parallel. Times are medians with the least and the most; machines are noisy, so each is also
given as a multiple of `python -c pass` in the same run.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GEN = [sys.executable, "-m", "generator"]


def seconds(command: list[str], runs: int, before=lambda: None) -> list[float]:
    """Wall times of whole processes, after one that does not count."""
    times = []
    for _ in range(runs + 1):
        before()
        start = time.perf_counter()
        subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
        times.append(time.perf_counter() - start)
    return times[1:]


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
            "python -c pass": seconds([sys.executable, "-c", "pass"], runs),
            "gen build, one package, cold": seconds(one, runs, remove),
            "gen build, one package, warm": seconds(one, runs),
            "gen check, nothing changed": seconds([*GEN, "check"], runs),
            "gen build --all, cold": seconds(everything, runs, remove),
        }
    base = statistics.median(rows["python -c pass"])
    print(f"{'command':32} {'median':>8} {'min':>8} {'max':>8}  x python")
    for name, times in rows.items():
        middle = statistics.median(times)
        print(f"{name:32} {middle:7.2f}s {min(times):7.2f}s {max(times):7.2f}s {middle / base:9.1f}")


if __name__ == "__main__":
    main()
