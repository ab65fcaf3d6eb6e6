"""Import and export hold a part of a checkpoint at a time: what the kernel says of their processes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "memory.py"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the largest resident set is read from /proc")
def test_peak_memory_is_at_most_one_and_a_half_checkpoints():
    process = subprocess.run([sys.executable, BENCHMARK, "--gib", "1"], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    found = {
        what: float(x) for what, x in re.findall(r"^\| (import|export) .* (\S+) \|$", process.stdout, re.MULTILINE)
    }
    assert found.keys() == {"import", "export"} and max(found.values()) <= 1.5, process.stdout
