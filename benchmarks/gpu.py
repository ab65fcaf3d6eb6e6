"""Speed of packages on one GPU beside torch: training, serving, experts, fp8 and long rows, in one command.

python benchmarks/gpu.py --prepare DIR [--python 3.12]      # where there is a network: weaves packages, fetches wheels
python benchmarks/gpu.py --prepared DIR --out RUN --seconds 540      # on the GPU, without a network
python benchmarks/gpu.py --small --out RUN                  # all of it with small sizes, on a CPU

The most valuable numbers come first. Each measurement is a process of its own, in which all of the card's memory is
free; what it measured is in RUN/results.jsonl at once. One that fails, or takes longer than it may, ends alone, and the
page says so. When the seconds are over, or on Ctrl-C, the page is written from what there is: RUN/gpu.md and gpu.png.
The same command goes on where it ended. It takes the JAX and the torch that are installed, and of the wheels only those
that are missing.

Both sides have the same sizes, batch, dtypes and tokens; times are medians of repetitions after a warm-up. Shares are
of the data sheet's number, and of the largest product and copy that this card made in the same run.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import importlib
import importlib.metadata
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from card.measurements import MEASUREMENTS, SIZES, Measurement, Task
from card.page import write_page

RESERVE = 10  # seconds that are kept for the page
LEAST = 15  # with fewer seconds left no measurement begins
CPU = {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_backend_optimization_level=0"}  # of --small
LIBRARIES = ("jax", "jaxlib", "flax", "torch", "transformers", "torchao")


class Results:
    """The records of a run, in a file of JSON lines that is whole after each."""

    def __init__(self, path: Path):
        self.path = path
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:  # a line that a killed run was writing
            path.write_text(whole)
        self.records: list[dict[str, Any]] = [json.loads(line) for line in whole.splitlines()]

    def add(self, record: dict[str, Any]) -> None:
        self.records.append(record)
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def done(self, measurement: Measurement) -> bool:
        return any(record.get("name") == measurement.name and record["status"] == "done" for record in self.records)


def reason(log: str) -> str:
    """Returns the last error that a log names, or else its last line."""
    errors = re.findall(r"^[\w.]+(?:Error|Exception): .*", log, re.MULTILINE)
    return [*log.strip().splitlines()[-1:], *errors][-1] if log.strip() else ""


def run_process(
    command: Sequence[str | Path], environment: dict[str, str], seconds: float, log: Path, add: Callable[[dict], None]
) -> str:
    """Runs a command for so many seconds at most, and adds each line of JSON that it prints.

    Returns why it failed, or "".
    """
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        ) as process,
    ):

        def read() -> None:
            for line in process.stdout:
                if line.endswith(b"\n"):  # else it was killed while it wrote
                    add(json.loads(line))

        reader = threading.Thread(target=read)
        reader.start()
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"stopped after {seconds:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with the processes that it started
            reader.join()
    return "" if code == 0 else reason(log.read_text(errors="replace")) or f"exit code {code}"


def run(
    measurements: Sequence[Measurement], command_of: Callable, results: Results, seconds: float, logs: Path
) -> None:
    """Makes the measurements that are not done yet, one after the other, until so many seconds are over."""
    end = time.monotonic() + seconds - RESERVE
    for measurement in measurements:
        if results.done(measurement):
            continue
        head = {"name": measurement.name, "row": measurement.row, "way": measurement.way}
        left = end - time.monotonic()
        if left < LEAST:
            results.add(head | {"status": "left out", "why": "no time was left"})
            continue
        print(f"{measurement.name} ({left:.0f} s left)", flush=True)
        start = time.monotonic()
        command, environment = command_of(measurement)
        log = logs / (re.sub(r"\W+", "_", measurement.name) + ".log")

        def add(values: dict[str, Any], head: dict[str, Any] = head) -> None:
            results.add(head | {"status": "measured"} | values)

        why = run_process(command, environment, min(measurement.seconds, left), log, add)
        status = {"status": "failed", "why": why} if why else {"status": "done"}
        results.add(head | status | {"took": round(time.monotonic() - start, 1)})
        print(f"  {why or 'done'}", flush=True)


def measure(name: str, prepared: Path, small: bool) -> None:
    """Makes one measurement in this process, and prints its records."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no record

    def end_with_parent() -> None:
        os.read(0, 1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=end_with_parent, daemon=True).start()
    (measurement,) = (it for it in MEASUREMENTS if it.name == name)
    models = json.loads((prepared / "models.json").read_text())["small" if small else "real"]
    module, _, function = measurement.function.partition(":")
    task = Task(measurement, small, models[measurement.sizes], lambda record: print(json.dumps(record), file=answers))
    getattr(importlib.import_module(f"card.{module}"), function)(task)


def machine(small: bool, missing: list[str]) -> dict[str, Any]:
    """Returns the card, its driver, and versions: of which card and when the numbers are."""
    fields = "name,driver_version,memory.total,clocks.max.sm,power.limit"
    card, values = f"small sizes on a CPU ({platform.machine()}), whose times say nothing", {}
    if not small:
        try:
            command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
            first = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
        except (OSError, subprocess.CalledProcessError, IndexError):
            sys.exit("nvidia-smi finds no GPU: --small runs on a CPU")
        values = dict(zip(fields.split(","), first.split(", "), strict=True))
        card = values["name"]
    versions = {}
    for name in LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    python = platform.python_version()
    return {"row": "machine", "status": "machine", "card": card, "date": when, "python": python, **values} | {
        "versions": versions,
        "missing": missing,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepare", type=Path, metavar="DIR", help="weave packages into a folder, and stop")
    parser.add_argument("--python", metavar="3.N", help="with --prepare: fetch wheels for this version too")
    parser.add_argument("--prepared", type=Path, metavar="DIR", help="what --prepare wrote; else it is done now")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), help="folder of the results")
    parser.add_argument("--seconds", type=float, default=1800, help="when to end, at the latest")
    parser.add_argument("--rows", nargs="+", choices=[*dict.fromkeys(it.row for it in MEASUREMENTS)])
    parser.add_argument("--small", action="store_true", help="small sizes, on a CPU")
    parser.add_argument("--measure", help=argparse.SUPPRESS)  # in this process
    given = parser.parse_args()
    if given.measure:
        return measure(given.measure, given.prepared, given.small)
    if given.prepared and not (given.prepared / "models.json").exists():
        sys.exit(f"--prepared {given.prepared}: nothing is prepared there: make it by --prepare {given.prepared}")
    for number in signal.SIGTERM, signal.SIGINT:
        signal.signal(number, lambda *_: sys.exit("stopped: the same command goes on from here"))
    if given.prepare:
        from card.prepare import prepare

        return prepare(given.prepare, given.python)
    with tempfile.TemporaryDirectory() as scratch:
        run_all(given, Path(scratch))


def run_all(given: argparse.Namespace, scratch: Path) -> None:
    start, prepared = time.monotonic(), given.prepared or scratch
    given.out.mkdir(parents=True, exist_ok=True)
    from card.prepare import install, prepare

    if not given.prepared:
        prepare(prepared)
    missing = install(prepared, scratch / "site")
    results = Results(given.out / "results.jsonl")
    here = machine(given.small, missing)
    others = {it["card"] for it in results.records if it["status"] == "machine"} - {here["card"]}
    if others:
        sys.exit(f"--out {given.out}: has results of {', '.join(sorted(others))}: give another folder")
    results.add(here)
    if missing:
        print(f"missing, and not among the wheels: {', '.join(missing)}", flush=True)

    def command_of(measurement: Measurement) -> tuple[list[str | Path], dict[str, str]]:
        folder = prepared / "packages" / (measurement.folder or SIZES[measurement.sizes].folder)
        paths = os.pathsep.join(str(path.resolve()) for path in (folder, scratch / "site"))
        environment = os.environ | {"PYTHONPATH": paths} | (CPU if given.small else {})
        command = [sys.executable, __file__, "--measure", measurement.name, "--prepared", prepared]
        return command + ["--small"] * given.small, environment

    chosen = [it for it in MEASUREMENTS if not given.rows or it.row in given.rows]
    if given.small:  # on machines that do other work too
        chosen = [dataclasses.replace(it, seconds=600) for it in chosen]
    try:
        run(chosen, command_of, results, given.seconds - (time.monotonic() - start), scratch)
    finally:
        write_page(results.records, given.out)


if __name__ == "__main__":
    main()
