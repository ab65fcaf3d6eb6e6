"""`gen cost`: prints the cost of a compiled program or a profile by fragment, as tables or as JSON."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import click

from generator.commands.console import AS_JSON, NO_ONE, PATH, note, write_json
from generator.commands.tables import Table, format_text
from generator.disk.project import Project
from generator.running.cost import KEYS, Cost, estimate_cost, sum_profile
from generator.running.hlo import is_program, read_program
from generator.running.woven_files import WovenFiles

NOTES = {
    "cycles": "Cycles: the compiler's estimates, of one run on one device; it makes none of what is in a kernel.",
    "nanoseconds": "As the profile has it, in all of its steps and on all of its devices.",
}


@click.command("cost", **NO_ONE)
@click.argument("file", metavar="FILE", type=PATH)
@AS_JSON
def command(file: Path, as_json: bool) -> None:
    """Print the cost of a program by fragment: cycles or time, bytes between devices, calls of kernels.

    FILE is the text of a compiled program (HLO): `python -m PACKAGE.compile --hlo FILE` writes it for TPUs that are not
    here. Cycles are the compiler's estimates; only programs for TPUs have them. Or it is a profile of JAX, the
    *.xplane.pb that training with --profile-steps writes: then the time is what was measured.
    """
    woven_files = WovenFiles(Project.find())
    if is_program(file):
        cost = estimate_cost(read_program(file), woven_files)
    else:
        from generator.running.profile import read_profile  # imports JAX

        cost = sum_profile(read_profile(file), woven_files)
    if as_json:
        write_json(_as_json(cost))
    else:
        click.echo("\n\n".join(format_text(table) for table in _make_tables(cost)))
    if not cost.spent.total():
        note(["the program has no estimates of cycles: those for TPUs have them"])
    if cost.guessed:
        note([f"{cost.guessed} loops or branches do not say how often they run: see docs/running.md"])
    note(f"{file}: {'; '.join(woven.notes)}" for file, woven in cost.woven.items() if woven.notes)
    note(map(str, woven_files.problems.values()))


def _make_tables(cost: Cost) -> list[Table]:
    """Returns a table of the costs by fragment with their sums, and one of the calls of kernels."""
    total, by_source, rows = cost.spent.total(), cost.by_source(), list[tuple]()
    for source, row in by_source.items():
        share = 100 * row["spent"] / total if total else None
        name = source.removeprefix("fragments/").removesuffix(".py")
        rows.append((name, row["spent"], share, *(row[key] for key in KEYS[1:])))
    sent, calls = (sum(row[key] for row in by_source.values()) for key in KEYS[2:])
    # a sum would count a fusion of several fragments several times
    rows.append(("total", total, 100.0 if total else None, None, sent, calls))
    heads = ("fragment", cost.unit, "%", "in fusions of others", "bytes between devices", "kernel calls")
    kernels = [(name, str(origin), number) for (origin, name), number in sorted(cost.kernels.items())]
    result = [Table("What it costs", heads, rows, NOTES[cost.unit])]
    return [*result, Table("Kernels", ("kernel", "called at", "calls"), kernels)] if kernels else result


def _as_json(cost: Cost) -> dict:
    """Returns the costs by fragment and line."""
    lines: dict[str, dict[int, int]] = defaultdict(dict)
    for origin, spent in cost.spent.items():
        lines[origin.path][origin.line] = spent
    names = {key: key for key in KEYS} | {"spent": cost.unit, "within": f"{cost.unit}_in_fusions_of_others"}
    rows = {source: {names[key]: row[key] for key in KEYS} for source, row in cost.by_source().items()}
    return {
        cost.unit: cost.spent.total(),
        "sources": {source: row | {"lines": lines[source]} for source, row in rows.items()},
        "kernels": [{"kernel": name, "at": str(at), "calls": calls} for (at, name), calls in cost.kernels.items()],
    }
