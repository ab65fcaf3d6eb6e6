"""Compiles every recipe of committed packages for hardware that is not here: minutes each for TPUs, hours in all.

python benchmarks/recipes.py [PACKAGE ...] [--only TEXT]   prints a table; exit code 1 where one does not fit

Needs jax[tpu] for packages of the tpu target; --only takes the recipes whose preset and hardware contain TEXT.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import time
from pathlib import Path

GENERATED = Path(__file__).resolve().parents[1] / "generated"


def main() -> int:
    parser = argparse.ArgumentParser(description="Compiles every recipe of committed packages.")
    parser.add_argument("packages", nargs="*")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    sys.path.insert(0, str(GENERATED))
    failures = 0
    print("| package | preset | hardware | seconds to compile | result |\n|---|---|---|---|---|")
    for package in given.packages or sorted(path.parent.name for path in GENERATED.glob("*/compile.py")):
        for preset, hardware in importlib.import_module(f"{package}.config").RECIPES:
            if given.only not in f"{preset} {hardware}":
                continue
            start = time.perf_counter()
            process = subprocess.run(
                [sys.executable, "-m", f"{package}.compile", "--preset", preset, "--hardware", hardware],
                cwd=GENERATED,
                env=os.environ | {"JAX_PLATFORMS": "cpu"},
                capture_output=True,
                text=True,
            )
            lines = process.stdout.splitlines() if process.returncode == 0 else process.stderr.splitlines()
            last, seconds = (lines or ["nothing said"])[-1], time.perf_counter() - start
            print(f"| {package} | {preset} | {hardware} | {seconds:.0f} | {last} |", flush=True)
            failures += process.returncode != 0
    return int(failures > 0)


if __name__ == "__main__":
    raise SystemExit(main())
