"""Judges the change of a package for each of its entry points, by tracing and running both versions."""

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
from generator.programs.sources import find_host_changes, is_same_code

SAME_TEXT, SAME_PROGRAM, EQUAL_VALUES = "same text", "same program", "equal values"
OTHER_NUMBERS, OTHER_PARAMETERS, OTHER_LAYOUT = "other numbers", "other parameters", "other layout"
OTHER_INTERFACE, HOST_CHANGED, UNDECIDED = "other interface", "host code changed", "undecided"
SAME = SAME_TEXT, SAME_PROGRAM
# the gravest last
VERDICTS = *SAME, EQUAL_VALUES, OTHER_NUMBERS, OTHER_PARAMETERS, OTHER_LAYOUT, OTHER_INTERFACE, HOST_CHANGED, UNDECIDED
TRAINING, EVALUATION, DECODING, INITIAL = "training step", "evaluation", "prefill and decode", "initial parameters"
ENTRIES = TRAINING, EVALUATION, DECODING, INITIAL
HOST = "code on the host"
MESH = "tiny on 8 devices"  # the variant that is traced under a mesh
LISTED = 6  # items of a list in a report
BOUND = 1e-5  # of equal values, relative to each array's largest number

LIBRARIES = "jax", "jaxlib", "flax", "optax", "numpy"
NO_LIBRARIES = "tracing needs what packages need: in a clone of Loomax, pip install -e '.[packages,serve]'"
SCRATCH = "gen_diff_"  # prefix of the folders in which packages are traced
SECONDS = 900  # for each process
ABSENT = {"undecided": "one side has no such program"}
# to compile fast rather than well
FLAGS = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
FLAGS += " --xla_cpu_parallel_codegen_split_count=1"
# the environment of a traced package: no token, no key, no file of credentials (see SECURITY.md)
KEPT = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT")

Facts = dict[str, Any]


class PackageVersion(NamedTuple):
    """The files of a package before or after a change."""

    name: str
    files: dict[str, bytes]

    @property
    def modules(self) -> dict[str, str]:
        """Returns the texts of its modules, without those of its tests."""
        paths = [path for path in self.files if path.endswith(".py") and not path.startswith("tests/")]
        return {path: self.files[path].decode("utf-8", "replace") for path in sorted(paths)}


@dataclass(frozen=True)
class EntryVerdict:
    """The verdict on one entry point of a package.

    Attributes:
        detail: how it is known, or what differs.
        numbers: name of a result -> relative distance.
    """

    entry: str
    verdict: str
    detail: str = ""
    numbers: dict[str, float] = field(default_factory=dict)


def on_all_entries(verdict: str, detail: str = "") -> list[EntryVerdict]:
    """Returns the same verdict on each entry point."""
    return [EntryVerdict(entry, verdict, detail) for entry in ENTRIES]


def judge(before: PackageVersion, after: PackageVersion, say: Callable[[str], None]) -> list[EntryVerdict]:
    """Returns a verdict on each entry point, and one on the host code if that changed.

    Args:
        say: receives a line before each long step.
    """
    old, new = before.modules, after.modules
    if old == new:
        return on_all_entries(SAME_TEXT, "of its programs")
    changed = [
        path for path in {**old, **new} if path not in old or path not in new or not is_same_code(old[path], new[path])
    ]
    if not changed:
        return on_all_entries(SAME_PROGRAM, "the same bytecode")
    versions = [importlib.metadata.version(name) for name in LIBRARIES if importlib.util.find_spec(name)]
    if len(versions) < len(LIBRARIES):
        return on_all_entries(UNDECIDED, NO_LIBRARIES)
    say(f"traces {before.name}, before and after the change")
    with ThreadPoolExecutor(2) as pool:
        facts = list(pool.map(lambda version: trace_facts(version, versions), (before, after)))
    for side, each in zip(("before", "after"), facts, strict=True):
        if "undecided" in each:
            return on_all_entries(UNDECIDED, f"{side} the change, {each['undecided']}")
    by_entry = {entry: _judge_facts(entry, *(each["programs"].get(entry, {}) for each in facts)) for entry in ENTRIES}
    verdicts = [verdict for verdict in by_entry.values() if isinstance(verdict, EntryVerdict)]
    if to_run := {entry: variants for entry, variants in by_entry.items() if isinstance(variants, list)}:
        say(f"runs {before.name}, before and after the change")
        verdicts += _compare_results(before, after, to_run)
    traced = [set(each["traced"]) for each in facts]
    names = [f"{path}: {name}" for path in changed for name in find_host_changes(path, old, new, traced)]
    if names:
        verdicts.append(EntryVerdict(HOST, HOST_CHANGED, f"in {list_some(names)}"))
    return sorted(verdicts, key=lambda verdict: [*ENTRIES, HOST].index(verdict.entry))


def trace_facts(version: PackageVersion, libraries: list[str]) -> Facts:
    """Returns the facts that `trace` writes of a version, or {"undecided": reason}; cached.

    Args:
        libraries: the versions of LIBRARIES.
    """
    sources = [sha256(path.read_bytes()) for path in sorted(Path(__file__).parent.glob("*.py"))]
    key = cache_key(version.name, version.modules, sources, libraries, sys.version)
    if (facts := load("facts", key)) is None:
        with tempfile.TemporaryDirectory(prefix=SCRATCH) as folder:
            problem = run_module("trace", version, folder)
            facts = {"undecided": problem} if problem else json.loads(Path(folder, "facts.json").read_bytes())
        if "undecided" not in facts:  # time or memory may have been short
            store("facts", key, facts)
    return facts


def run_module(module: str, version: PackageVersion, folder: str, *words: str) -> str:
    """Runs a module of this folder on a version of a package, in a process of its own.

    Returns:
        Why it failed, '' if it did not.
    """
    folder = os.path.realpath(folder)
    for path, text in version.modules.items():
        file = Path(folder, version.name, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    environment |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": FLAGS, "PYTHONHASHSEED": "0", "HOME": folder}
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-P", "-m", f"generator.programs.{module}", folder, version.name, *words]
    options: Any = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": SECONDS}
    try:
        done = subprocess.run(command, env=environment, cwd=folder, **options)
    except subprocess.TimeoutExpired:
        return f"it took more than {SECONDS} seconds"
    last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
    return f"the process that traced it ended with code {done.returncode}: {last}" if done.returncode else ""


def _judge_facts(entry: str, old: Facts, new: Facts) -> EntryVerdict | list[str]:
    """Returns the verdict that follows from the facts of an entry point, or else the variants to run."""
    pairs = [(name, old.get(name, ABSENT), new.get(name, ABSENT)) for name in {**old, **new}]
    reasons = [facts["undecided"] for _, *pair in pairs for facts in pair if "undecided" in facts]
    if reasons:
        return EntryVerdict(entry, UNDECIDED, reasons[0])
    differing = [(name.partition(":")[0], a, b) for name, a, b in pairs if a != b]
    variants = list(dict.fromkeys(variant for variant, _, _ in differing))
    arrays = [line for _, a, b in differing for line in _compare_arrays(a["takes"], b["takes"])]
    if not differing:
        return EntryVerdict(entry, SAME_PROGRAM, "equal jaxprs" if pairs else "there is none")
    if variants == [MESH]:
        return EntryVerdict(entry, OTHER_LAYOUT, list_some(arrays) or "constraints or collectives on 8 devices")
    if arrays:
        parameters = any(line.startswith(("['state']", "['model']")) for line in arrays)
        return EntryVerdict(entry, OTHER_PARAMETERS if parameters else OTHER_INTERFACE, list_some(arrays))
    if entry == DECODING:
        return EntryVerdict(entry, UNDECIDED, "jaxprs differ; steps of an engine are not run")
    small = [variant for variant in variants if variant.startswith("tiny") and variant != MESH]
    detail = f"jaxprs differ at {', '.join(variants)} alone, which is too large to run"
    return small or EntryVerdict(entry, UNDECIDED, detail)


def _compare_arrays(before: dict[str, str], after: dict[str, str]) -> list[str]:
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return [f"{name}: {before.get(name, 'absent')} -> {after.get(name, 'absent')}" for name in names]


def list_some(lines: list[str], separator: str = "; ") -> str:
    """Returns the first of distinct lines, shortened, and the number of the others."""
    lines = list(dict.fromkeys(lines))
    more = [f"and {len(lines) - LISTED} more"] if len(lines) > LISTED else []
    return separator.join([line[:160] for line in lines[:LISTED]] + more)


def _compare_results(before: PackageVersion, after: PackageVersion, to_run: dict[str, list[str]]) -> list[EntryVerdict]:
    """Runs entry points, each version in a process of its own, and compares their results."""
    import numpy as np  # late: nothing else needs it

    def run(version: PackageVersion) -> tuple[str, dict[str, Any]]:
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
        _judge_results(entry, *({k: x for k, x in side.items() if k.startswith(f"{entry}/")} for side in (old, new)))
        for entry in to_run
    ]


def _judge_results(entry: str, old: dict[str, Any], new: dict[str, Any]) -> EntryVerdict:
    """Returns the verdict on an entry point from the arrays that it computes."""
    import numpy as np

    if old.keys() != new.keys():
        return EntryVerdict(entry, OTHER_NUMBERS, f"gives other arrays: {list_some(sorted(old.keys() ^ new.keys()))}")
    if not old or any(np.isnan(x).any() for x in old.values()):
        return EntryVerdict(entry, UNDECIDED, "jaxprs differ, and results are not numbers")
    numbers: dict[str, float] = {}
    for name, x in old.items():
        part = name.removeprefix(f"{entry}/").partition("[")[0].partition(".")[0]
        numbers[part] = max(numbers.get(part, 0.0), relative_distance(x, new[name]))
    verdict = EQUAL_VALUES if max(numbers.values()) <= BOUND else OTHER_NUMBERS
    return EntryVerdict(entry, verdict, "relative to the largest number of each array", numbers)


def relative_distance(old: Any, new: Any) -> float:
    """Returns the largest difference of two arrays relative to the largest number; of integers the share that differs.

    It is infinite if shapes, dtypes, or the places of finite numbers differ.
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
    largest, difference = np.abs(old).max(), np.abs(old - new).max()
    return float(difference / largest) if largest else float(difference and np.inf)
