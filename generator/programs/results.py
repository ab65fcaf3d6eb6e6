"""How far the results of two versions of a program are apart, on the same numbers."""

from __future__ import annotations

import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from generator.programs.facts import Version, run_module, write_files
from generator.programs.guard import SCRATCH
from generator.programs.verdicts import EQUAL_VALUES, OTHER_NUMBERS, UNDECIDED, Finding

BOUND = 1e-5  # of each array's largest number
FAILED = "jaxprs differ, and to compare results failed"


def run_both(before: Version, after: Version, to_run: dict[str, list[str]]) -> list[Finding]:
    """Runs the entry points that differ with one variant of settings after the other, until numbers differ.

    Args:
        to_run: entry point -> variants.
    """
    found: dict[str, Finding] = {}
    for turn in range(max(map(len, to_run.values()))):
        asked: dict[str, list[str]] = {}
        for entry, variants in to_run.items():
            if turn < len(variants) and (not turn or found[entry].verdict == EQUAL_VALUES):
                asked.setdefault(variants[turn], []).append(entry)
        for finding in _run(before, after, asked) if asked else []:
            earlier = found.get(finding.entry)
            if earlier and finding.verdict == EQUAL_VALUES:
                most = {name: max(value, earlier.numbers.get(name, 0.0)) for name, value in finding.numbers.items()}
                detail = f"{earlier.detail}; {finding.detail}"
                finding = Finding(finding.entry, EQUAL_VALUES, detail, earlier.numbers | most)
            found[finding.entry] = finding
    return list(found.values())


def _run(before: Version, after: Version, asked: dict[str, list[str]]) -> list[Finding]:
    """Runs entry points (variant -> their names), each side in a process of its own, and compares what they give."""
    import numpy as np  # late: where nothing is run, nothing needs it

    entries = [(variant, entry) for variant, names in asked.items() for entry in names]
    with tempfile.TemporaryDirectory(prefix=SCRATCH) as name:
        folders = [os.path.join(os.path.realpath(name), version.side) for version in (before, after)]
        for version, folder in zip((before, after), folders, strict=True):
            write_files(version, folder)
        request = json.dumps(asked)
        with ThreadPoolExecutor(2) as pool:
            problems = list(pool.map(lambda folder: run_module("values", folder, before.name, request), folders))
        if reason := next(filter(None, problems), ""):
            return [Finding(entry, UNDECIDED, f"{FAILED}: {reason}") for _, entry in entries]
        reasons = [json.loads(Path(folder, f"{before.name}.undecided.json").read_bytes()) for folder in folders]
        old, new = (np.load(Path(folder, f"{before.name}.npz")) for folder in folders)
        with old, new:
            return [_finding(variant, entry, old, new, reasons) for variant, entry in entries]


def _finding(variant: str, entry: str, old: Any, new: Any, reasons: list[dict[str, str]]) -> Finding:
    import numpy as np

    prefix = f"{variant}/{entry}"
    if reason := next((side[prefix] for side in reasons if prefix in side), ""):
        return Finding(entry, UNDECIDED, f"{FAILED}: {reason}")
    names = [{name for name in side.files if name.startswith(f"{prefix}/")} for side in (old, new)]
    if names[0] != names[1]:
        other = ", ".join(sorted(name.removeprefix(f"{prefix}/") for name in names[0] ^ names[1])[:3])
        return Finding(entry, OTHER_NUMBERS, f"gives other arrays: {other}")
    if not names[0] or any(np.isnan(old[name]).any() for name in names[0]):
        return Finding(entry, UNDECIDED, "jaxprs differ, and results are no numbers")
    numbers: dict[str, float] = {}
    for name in sorted(names[0]):
        part = name.removeprefix(f"{prefix}/").partition("[")[0].partition(".")[0]
        numbers[part] = max(numbers.get(part, 0.0), distance(old[name], new[name]))
    if all(value <= BOUND for value in numbers.values()):
        return Finding(
            entry, EQUAL_VALUES, f"within {BOUND:g} of the largest number of each array ({variant})", numbers
        )
    return Finding(entry, OTHER_NUMBERS, f"relative to the largest number of each array ({variant})", numbers)


def distance(old: Any, new: Any) -> float:
    """The largest difference, relative to the largest number; of whole numbers, such as tokens, the share that differs.

    Infinite where shapes, dtypes, or what is finite differ.
    """
    import numpy as np

    if old.shape != new.shape or old.dtype != new.dtype:
        return float("inf")
    if old.dtype.kind != "f":
        return float(np.mean(old != new)) if old.size else 0.0
    if not old.size:
        return 0.0
    finite = np.isfinite(old)
    if not np.array_equal(np.where(finite, 0, old), np.where(np.isfinite(new), 0, new), equal_nan=True):
        return float("inf")
    old, new = (np.where(finite, x, 0).astype(np.float64) for x in (old, new))
    most, apart = np.abs(old).max(), np.abs(old - new).max()
    return float(apart / most) if most else float(apart and np.inf)
