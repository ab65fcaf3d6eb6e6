"""The page of a run: a table of all measurements, as Markdown, and a plot of each row's sides."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from .measurements import MEASUREMENTS, SIZES

TARGET = Path(__file__).resolve().parents[2] / "targets" / "gpu" / "target.toml"
Record = dict[str, Any]


def data_sheet(card: str) -> dict[str, float]:
    """Returns the peaks of a card by its data sheet, FLOP/s in bf16 and bytes a second, as far as they are known."""
    chips = tomllib.loads(TARGET.read_text())["settings"]["chips"].values()
    return next(({"flops": it["peak"], "bytes": it["bandwidth"]} for it in chips if card in it["kinds"]), {})


def measured_peaks(records: list[Record]) -> dict[str, float]:
    """Returns the fastest product in bf16, in fp8, and the fastest copy that this run made, by either side."""
    peaks: dict[str, float] = {}
    for record in records:
        if record.get("row") == "peak" and record["status"] == "measured":
            amount = record["bytes"] if record["what"] == "copy" else record["flops"]["full"]
            name = {"copy": "bytes", "product in bfloat16": "flops"}.get(record["what"], "fp8")
            peaks[name] = max(peaks.get(name, 0), amount / record["seconds"]["median"])
    return peaks


def shares(record: Record, sheet: dict[str, float], peaks: dict[str, float]) -> str:
    """Says what share of the data sheet's peak, and of the measured one, a measurement reaches, by each convention."""
    found = []
    for name, flops in record.get("flops", {}).items():
        rate = flops / record["seconds"]["median"]
        of = [f"{rate / peak['flops']:.1%}" if "flops" in peak else "-" for peak in (sheet, peaks)]
        found.append(f"{name} {rate / 1e12:,.4g} TFLOP/s: {of[0]}, {of[1]}")
    if "bytes" in record:
        rate = record["bytes"] / record["seconds"]["median"]
        of = [f"{rate / peak['bytes']:.1%}" if "bytes" in peak else "-" for peak in (sheet, peaks)]
        found.append(f"{rate / 1e9:,.4g} GB/s: {of[0]}, {of[1]}")
    return "; ".join(found)


def line(record: Record, sheet: dict[str, float], peaks: dict[str, float]) -> str:
    seconds = record["seconds"]
    median, low, high = (f"{1e3 * seconds[name]:,.4g}" for name in ("median", "p25", "p75"))
    rate = f"{record['tokens'] / seconds['median']:,.4g}" if "tokens" in record else ""
    rest = [f"{record[name]:.1f}" if name in record else "" for name in ("peak_gib", "compile_seconds")]
    notes = [f"loss {record['first_loss']:.4f}"] if "first_loss" in record else []
    notes += [f"error {record['error']:.1e}"] if "error" in record else []
    notes += [record["note"]] if "note" in record else []
    cells = [record["way"], record["what"], median, f"{low} to {high}, {seconds['repetitions']}", rate]
    return f"| {' | '.join([*cells, shares(record, sheet, peaks), *rest, '; '.join(notes)])} |"


def ratios(records: list[Record]) -> dict[str, float]:
    """Returns, by row and what was timed, theirs over our seconds, each side at its fastest."""
    best: dict[tuple[str, str], dict[bool, float]] = {}
    for record in records:
        if record["status"] == "measured" and record["row"] != "peak":
            sides = best.setdefault((record["row"], record["what"]), {})
            ours = record["way"].startswith("ours")
            sides[ours] = min(sides.get(ours, record["seconds"]["median"]), record["seconds"]["median"])
    return {f"{row}: {what}": x[False] / x[True] for (row, what), x in best.items() if len(x) == 2}


def draw(speeds: dict[str, float], card: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 0.6 + 0.4 * len(speeds)), layout="constrained")
    axes.barh([*speeds], [*speeds.values()])
    axes.axvline(1, color="black", linewidth=1)
    axes.invert_yaxis()
    axes.set(xlabel=f"speed over torch's, {card}")
    figure.savefig(path, dpi=150)


def write_page(records: list[Record], folder: Path) -> None:
    """Writes gpu.md, and gpu.png if matplotlib is there."""
    machine = [record for record in records if record["status"] == "machine"][-1]
    card, sheet, peaks = machine["card"], data_sheet(machine["card"]), measured_peaks(records)
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    text = [f"# {card}, {machine['date'][:10]}", "", f"Python {machine['python']}, {versions}."]
    if machine["missing"]:
        text.append(f"Missing: {', '.join(machine['missing'])}.")
    text += [
        "",
        "Shares: of the data sheet's peak, and of the fastest product and copy that this run made. FLOPs: full",
    ]
    text += ["attention; its causal half; the causal half of each document. Recomputed work does not count.", ""]
    for row in dict.fromkeys(it.row for it in MEASUREMENTS):
        own = [record for record in records if record.get("row") == row]
        if not own:
            continue
        sizes = next(it.sizes for it in MEASUREMENTS if it.row == row)
        text += [f"## {row}: {SIZES[sizes].title}", ""]
        text += ["| side | what | ms, median | p25 to p75, times | tokens/s | shares | GiB | compiled in s | |"]
        text += ["|---|---|---|---|---|---|---|---|---|"]
        text += [line(record, sheet, peaks) for record in own if record["status"] == "measured"]
        last = {record["way"]: record for record in own if record["status"] != "measured"}
        ends = [record for record in last.values() if record["status"] != "done"]
        text += ["", *(f"{it['way']}: {it['status']}: {it['why'][:300]}." for it in ends), ""]
    speeds = ratios(records)
    if speeds:
        text += ["## Speed over torch's", "", *(f"- {name}: {value:.2f}" for name, value in speeds.items()), ""]
        try:
            draw(speeds, card, folder / "gpu.png")
            text += ["![Speed over torch's](gpu.png)", ""]
        except ImportError:
            text += ["No plot: matplotlib is missing.", ""]
    (folder / "gpu.md").write_text("\n".join(text))
