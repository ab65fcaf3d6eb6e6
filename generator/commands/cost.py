"""`gen cost`: what a compiled program or a profile costs by fragment, as tables, JSON and a picture."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from generator.commands.tables import Table
from generator.errors import LoomError
from generator.running.cost import Cost

KEYS = ("spent", "within", "bytes_between_devices", "kernel_calls")
NOTES = {
    "cycles": "Cycles: the compiler's estimates, of one run on one device; it makes none of what is in a kernel.",
    "nanoseconds": "As the profile has it, in all of its steps and on all of its devices.",
}


def by_source(cost: Cost) -> dict[str, Counter[str]]:
    """Source -> what it costs by KEYS, the dearest first."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for origin, cycles in cost.spent.items():
        rows[origin.path][KEYS[0]] += cycles
    for source, cycles in cost.within.items():
        rows[source][KEYS[1]] += cycles
    for sent, origin in cost.links.values():
        rows[origin.path][KEYS[2]] += sent
    for (origin, _), calls in cost.kernels.items():
        rows[origin.path][KEYS[3]] += calls
    return {source: row for source, row in sorted(rows.items(), key=lambda it: -it[1][KEYS[0]]) if row.total()}


def tables(cost: Cost) -> list[Table]:
    """The costs by fragment with their sums, and the calls of kernels."""
    rows, total = by_source(cost), cost.spent.total()
    sums = [sum(row[key] for row in rows.values()) for key in KEYS]
    cells: list[tuple] = [(_short(source), *(row[key] for key in KEYS)) for source, row in rows.items()]
    cells.append(("total", sums[0], None, *sums[2:]))  # a fusion of several would be in a sum several times
    cells = [(name, cycles, 100 * cycles / total if total else None, *rest) for name, cycles, *rest in cells]
    heads = ("fragment", cost.unit, "%", "in fusions of others", "bytes between devices", "kernel calls")
    calls = [(name, str(origin), number) for (origin, name), number in sorted(cost.kernels.items())]
    kernels = [Table("Kernels", ("kernel", "called at", "calls"), calls)] if calls else []
    return [Table("What it costs", heads, cells, NOTES[cost.unit]), *kernels]


def as_json(cost: Cost) -> dict:
    """The costs by fragment and line."""
    lines: dict[str, dict[int, int]] = defaultdict(dict)
    for origin, cycles in cost.spent.items():
        lines[origin.path][origin.line] = cycles
    names = {key: key for key in KEYS} | {"spent": cost.unit, "within": f"{cost.unit}_in_fusions_of_others"}
    rows = {source: {names[key]: row[key] for key in KEYS} for source, row in by_source(cost).items()}
    return {
        cost.unit: cost.spent.total(),
        "sources": {source: row | {"lines": lines[source]} for source, row in rows.items()},
        "kernels": [{"kernel": name, "at": str(at), "calls": calls} for (at, name), calls in cost.kernels.items()],
    }


def draw(cost: Cost, path: Path) -> None:
    """Writes bars of what is spent by fragment, with what is in fusions of others beside."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        remedy = "Install it: in a clone of Loomax, pip install -e '.[packages]'; the table needs none."
        raise LoomError("matplotlib, which draws, is not installed", remedy=remedy) from None
    rows = list(by_source(cost).items())[:40][::-1]
    figure = Figure(figsize=(10, 1.2 + 0.28 * len(rows)), layout="constrained")
    axes, names = figure.add_subplot(), [_short(source) for source, _ in rows]
    own, within = ([float(row[key]) for _, row in rows] for key in KEYS[:2])
    axes.barh(names, own, label="its own")
    axes.barh(names, within, left=own, color="lightgray", label="in fusions counted for others")
    axes.set_xlabel("estimated cycles of one run on one device" if cost.unit == "cycles" else cost.unit)
    axes.legend(loc="lower right")
    try:
        figure.savefig(path, dpi=120)
    except ValueError as error:
        raise LoomError(f"cannot be drawn: {error}", str(path), "Name a file that ends in .png.") from None


def _short(source: str) -> str:
    return source.removeprefix("fragments/").removesuffix(".py")
