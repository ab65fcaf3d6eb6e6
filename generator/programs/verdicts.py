"""Says what the change of a package means for each of its entry points, by tracing and running both versions."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from generator.disk.cache import cache_key, load, store
from generator.disk.files import sha256
from generator.programs.sources import host_changes, same_code

SAME_TEXT, SAME_PROGRAM, EQUAL_VALUES = "same text", "same program", "equal values"
OTHER_NUMBERS, OTHER_PARAMETERS, OTHER_LAYOUT = "other numbers", "other parameters", "other layout"
OTHER_INTERFACE, HOST_CHANGED, UNDECIDED = "other interface", "host code changed", "undecided"
TRAINING, EVALUATION, DECODING, INITIAL = "training step", "evaluation", "prefill and decode", "initial parameters"
HOST = "code on the host"
SAME = SAME_TEXT, SAME_PROGRAM
OTHER = EQUAL_VALUES, OTHER_NUMBERS, OTHER_PARAMETERS, OTHER_LAYOUT, OTHER_INTERFACE
VERDICTS = *SAME, *OTHER, HOST_CHANGED, UNDECIDED  # the gravest last
ENTRIES = TRAINING, EVALUATION, DECODING, INITIAL
MESH = "tiny on 8 devices"
MOST = 6  # differences that a detail names
BOUND = 1e-5  # of each array's largest number

LIBRARIES = "jax", "jaxlib", "flax", "optax", "numpy"
SCRATCH = "gen_diff_"  # begins the names of the folders that packages are traced in
SECONDS = 900  # for each process
ABSENT = {"undecided": "one side has no such program"}
# to compile fast rather than well
FLAGS = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
FLAGS += " --xla_cpu_parallel_codegen_split_count=1"
# what a package that is traced sees of the environment: no token, no key, no file of credentials (see SECURITY.md)
KEPT = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT")

Facts = dict[str, Any]


class PackageFiles(NamedTuple):
    """The files of a package before or after a change."""

    name: str
    files: dict[str, bytes]

    @property
    def program(self) -> dict[str, str]:
        """The text of each module."""
        paths = [path for path in self.files if path.endswith(".py") and not path.startswith("tests/")]
        return {path: self.files[path].decode("utf-8", "replace") for path in sorted(paths)}


@dataclass(frozen=True)
class EntryVerdict:
    """The verdict on one entry point of a package.

    Attributes:
        detail: how it is known, or what differs.
        numbers: how far results are apart, by what they are of.
    """

    entry: str
    verdict: str
    detail: str = ""
    numbers: dict[str, float] = field(default_factory=dict)


def judge(before: PackageFiles, after: PackageFiles, say: Callable[[str], None]) -> list[EntryVerdict]:
    """Returns a finding for each entry point, and one for changed code on the host; `say` is told what goes on."""
    old, new = before.program, after.program
    if old == new:
        return [EntryVerdict(entry, SAME_TEXT, "of its programs") for entry in ENTRIES]
    changed = [
        path for path in {**old, **new} if path not in old or path not in new or not same_code(old[path], new[path])
    ]
    if not changed:
        return [EntryVerdict(entry, SAME_PROGRAM, "the same bytecode") for entry in ENTRIES]
    libraries = [importlib.metadata.version(name) for name in LIBRARIES if importlib.util.find_spec(name)]
    if len(libraries) < len(LIBRARIES):
        detail = "tracing needs what packages need: in a clone of Loomax, pip install -e '.[packages,serve]'"
        return [EntryVerdict(entry, UNDECIDED, detail) for entry in ENTRIES]
    say(f"traces {before.name}, before and after the change")
    with ThreadPoolExecutor(2) as pool:
        facts = list(pool.map(lambda version: facts_of(version, libraries), (before, after)))
    for side, found in zip(("before", "after"), facts, strict=True):
        if "undecided" in found:
            return [EntryVerdict(entry, UNDECIDED, f"{side} the change, {found['undecided']}") for entry in ENTRIES]
    findings, to_run = _compare(*facts)
    if to_run:
        say(f"runs {before.name}, before and after the change")
        findings += _compare_numbers(before, after, to_run)
    traced = [set(found["traced"]) for found in facts]
    names = [f"{path}: {name}" for path in changed for name in host_changes(path, old, new, traced)]
    if names:
        findings.append(EntryVerdict(HOST, HOST_CHANGED, f"in {_few(names)}"))
    return sorted(findings, key=lambda finding: [*ENTRIES, HOST].index(finding.entry))


def facts_of(version: PackageFiles, libraries: list[str]) -> Facts:
    """Returns what programs a version has, or why that is not known; it is kept for the next time."""
    sources = [sha256(path.read_bytes()) for path in sorted(Path(__file__).parent.glob("*.py"))]
    key = cache_key(version.name, version.program, sources, libraries, sys.version)
    if (facts := load("facts", key)) is None:
        with tempfile.TemporaryDirectory(prefix=SCRATCH) as folder:
            problem = run_module("trace", version, folder)
            facts = {"undecided": problem} if problem else json.loads(Path(folder, "facts.json").read_bytes())
        if "undecided" not in facts:  # for want of time or memory, perhaps
            store("facts", key, facts)
    return facts


def run_module(module: str, version: PackageFiles, folder: str, *words: str) -> str:
    """Runs a module of this folder on a version in a process of its own.

    Returns:
        What went wrong, '' where nothing did.
    """
    folder = os.path.realpath(folder)
    for path, text in version.program.items():
        place = Path(folder, version.name, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    clean = {name: os.environ[name] for name in KEPT if name in os.environ}
    root = str(Path(__file__).resolve().parents[2])
    clean |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": FLAGS, "PYTHONPATH": root, "PYTHONHASHSEED": "0", "HOME": folder}
    command = [sys.executable, "-P", "-m", f"generator.programs.{module}", folder, version.name, *words]
    try:
        ran = subprocess.run(
            command, env=clean, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"it took more than {SECONDS} seconds"
    last = ran.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
    return f"the process that traced it ended with code {ran.returncode}: {last}" if ran.returncode else ""


def _compare(before: Facts, after: Facts) -> tuple[list[EntryVerdict], dict[str, list[str]]]:
    """Returns the findings that facts are enough for; the other entry points, with the variants to run."""
    findings, to_run = list[EntryVerdict](), dict[str, list[str]]()
    for entry in ENTRIES:
        old, new = (facts["programs"].get(entry, {}) for facts in (before, after))
        pairs = [(name, old.get(name, ABSENT), new.get(name, ABSENT)) for name in {**old, **new}]
        reasons = [it["undecided"] for _, *pair in pairs for it in pair if "undecided" in it]
        if reasons:
            findings.append(EntryVerdict(entry, UNDECIDED, reasons[0]))
            continue
        differing = [(name.partition(":")[0], a, b) for name, a, b in pairs if a != b]
        variants = list(dict.fromkeys(variant for variant, _, _ in differing))
        takes = [line for _, a, b in differing for line in _differences(a["takes"], b["takes"])]
        if not differing:
            findings.append(EntryVerdict(entry, SAME_PROGRAM, "equal jaxprs" if pairs else "there is none"))
        elif variants == [MESH]:
            findings.append(EntryVerdict(entry, OTHER_LAYOUT, _few(takes) or "constraints or collectives on 8 devices"))
        elif takes:
            parameters = any(line.startswith(("['state']", "['model']")) for line in takes)
            findings.append(EntryVerdict(entry, OTHER_PARAMETERS if parameters else OTHER_INTERFACE, _few(takes)))
        elif entry == DECODING:
            findings.append(EntryVerdict(entry, UNDECIDED, "jaxprs differ; steps of an engine are not run"))
        elif tiny := [variant for variant in variants if variant.startswith("tiny") and variant != MESH]:
            to_run[entry] = tiny
        else:
            detail = f"jaxprs differ at {', '.join(variants)} alone, which is too large to run"
            findings.append(EntryVerdict(entry, UNDECIDED, detail))
    return findings, to_run


def _differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return [f"{name}: {before.get(name, 'absent')} -> {after.get(name, 'absent')}" for name in names]


def _few(lines: list[str]) -> str:
    lines = list(dict.fromkeys(lines))
    more = f"; and {len(lines) - MOST} more" if len(lines) > MOST else ""
    return "; ".join(line[:160] for line in lines[:MOST]) + more


def _compare_numbers(before: PackageFiles, after: PackageFiles, to_run: dict[str, list[str]]) -> list[EntryVerdict]:
    """Runs entry points, each side in a process of its own, and compares what they give."""
    import numpy as np  # late: where nothing is run, nothing needs it

    def run(version: PackageFiles) -> tuple[str, dict[str, Any]]:
        with tempfile.TemporaryDirectory(prefix=SCRATCH) as folder:
            problem = run_module("values", version, folder, json.dumps(to_run))
            if problem:
                return problem, {}
            with np.load(Path(folder, "values.npz")) as values:
                return "", dict(values)

    with ThreadPoolExecutor(2) as pool:
        (problem, old), (other, new) = pool.map(run, (before, after))
    if problem or other:
        detail = f"jaxprs differ, and to compare results failed: {problem or other}"
        return [EntryVerdict(entry, UNDECIDED, detail) for entry in to_run]
    return [
        _finding(entry, *({k: x for k, x in side.items() if k.startswith(f"{entry}/")} for side in (old, new)))
        for entry in to_run
    ]


def _finding(entry: str, old: dict[str, Any], new: dict[str, Any]) -> EntryVerdict:
    import numpy as np

    if old.keys() != new.keys():
        return EntryVerdict(entry, OTHER_NUMBERS, f"gives other arrays: {_few(sorted(old.keys() ^ new.keys()))}")
    if not old or any(np.isnan(x).any() for x in old.values()):
        return EntryVerdict(entry, UNDECIDED, "jaxprs differ, and results are no numbers")
    numbers: dict[str, float] = {}
    for name, x in old.items():
        part = name.removeprefix(f"{entry}/").partition("[")[0].partition(".")[0]
        numbers[part] = max(numbers.get(part, 0.0), distance(x, new[name]))
    verdict = EQUAL_VALUES if max(numbers.values()) <= BOUND else OTHER_NUMBERS
    return EntryVerdict(entry, verdict, "relative to the largest number of each array", numbers)


def distance(old: Any, new: Any) -> float:
    """Returns the largest difference relative to the largest number; of whole numbers the share that differs.

    Infinite where shapes, dtypes, or what is finite differ.
    """
    import numpy as np

    if old.shape != new.shape or old.dtype != new.dtype:
        return float("inf")
    if old.dtype.kind != "f" or not old.size:
        return float(np.mean(old != new)) if old.size else 0.0
    finite = np.isfinite(old)
    if not np.array_equal(np.where(finite, 0, old), np.where(np.isfinite(new), 0, new), equal_nan=True):
        return float("inf")
    old, new = (np.where(finite, x, 0).astype(np.float64) for x in (old, new))
    most, apart = np.abs(old).max(), np.abs(old - new).max()
    return float(apart / most) if most else float(apart and np.inf)
