"""Compiles every preset for the slices that the READMEs of committed packages name: minutes each, hours in all.

python benchmarks/slices.py [PACKAGE ...]       prints a table; exit code 1 where something does not compile and fit
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

GENERATED = Path(__file__).resolve().parents[1] / "generated"


def main() -> int:
    packages = sys.argv[1:] or sorted(path.name for path in GENERATED.glob("*_tpu"))
    failures = 0
    print("| package | preset | slice and flags | result |\n|---|---|---|---|")
    for package in packages:
        readme = (GENERATED / package / "README.md").read_text()
        for preset, flags in re.findall(r"^\| (\S+) \| `(\S+:\S+ --.*)` \|$", readme, re.MULTILINE):
            process = subprocess.run(
                [sys.executable, "-m", f"{package}.compile", "--preset", preset, "--topology", *flags.split()],
                cwd=GENERATED,
                env=os.environ | {"JAX_PLATFORMS": "cpu"},
                capture_output=True,
                text=True,
            )
            lines = process.stdout.splitlines() if process.returncode == 0 else process.stderr.splitlines()
            print(f"| {package} | {preset} | {flags} | {(lines or ['nothing said'])[-1]} |", flush=True)
            failures += process.returncode != 0
    return int(failures > 0)


if __name__ == "__main__":
    raise SystemExit(main())
