"""The command line of `gen trace`, `gen coverage` and `gen cost`, which read what runs of packages recorded."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from generator.commands.console import AS_JSON, NO_ONE, PATH, exit_codes, write_json
from generator.errors import LoomError


@click.command("trace", **NO_ONE)
@click.argument("file", metavar="[FILE]", type=PATH, required=False)
def trace_(file: Path | None) -> None:
    """Write a traceback with the fragment line below each frame.

    It is read from FILE or from the standard input, with the log around it, and every byte of it stays. Known are
    tracebacks of Python, those that JAX filters, and those of pytest.
    """
    from generator.disk.project import Project
    from generator.running.origins import Origins
    from generator.running.trace import annotate

    origins = Origins(Project.find())
    with click.open_file(str(file or "-"), "rb") as lines, click.open_file("-", "wb") as out:
        for line in annotate(lines, origins):
            out.write(line)
            out.flush()  # a log may go on for days
    _note(map(str, origins.problems.values()))


def _number(_: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value != value:  # nan, which nothing is less than
        raise click.BadParameter("nan is no number.", param=parameter)
    return value


@click.command("coverage", **exit_codes("1 less is executed than --fail-under"))
@click.argument("data", metavar="DATA...", nargs=-1, required=True, type=PATH)
@click.option("--fail-under", metavar="PERCENT", type=click.FloatRange(0, 100), callback=_number, help="The least.")
@click.option("--html", metavar="DIR", type=PATH, help="Write pages that show the lines, too.")
@AS_JSON
def coverage_(data: tuple[Path, ...], fail_under: float | None, html: Path | None, as_json: bool) -> None:
    """Report the fragment lines that nothing executed in any package, with the reports of coverage.py.

    DATA are data files of coverage.py of runs of packages: of their tests, say. A line counts if it makes a statement
    in one of these packages.
    """
    from generator.disk.project import Project
    from generator.running.coverage import read_covered, report
    from generator.running.origins import Origins

    project = Project.find()
    origins = Origins(project)
    found = read_covered(list(data), origins)
    if not found.lines:
        remedy = "Run them from the folder of the packages, on packages as they were woven."
        raise LoomError("the data are of no woven file", str(data[0]), remedy)
    percent = report(found, origins, html, as_json)
    sources = (path for path in project.library().files if path.startswith("fragments/") and path.endswith(".py"))
    _note(f"{path} is in no package of the data" for path in sorted(sources) if path not in found.sources)
    _note(f"{len(set(files))} files do not count, as they {why}: {files[0]}" for why, files in found.ignored.items())
    _note(map(str, origins.problems.values()))
    if fail_under is not None and percent < fail_under:
        click.echo(f"{percent:.2f} % is less than {fail_under:g} %", err=True)
        raise click.exceptions.Exit(1)


@click.command("cost", **NO_ONE)
@click.argument("file", metavar="FILE", type=PATH)
@AS_JSON
def cost_(file: Path, as_json: bool) -> None:
    """Say what a program costs by fragment: cycles or time, bytes between devices, calls of kernels.

    FILE is the text of a compiled program (HLO): `python -m PACKAGE.compile --hlo FILE` writes it for TPUs that are not
    here. Cycles are the compiler's estimates; only programs for TPUs have them. Or it is a profile of JAX, the
    *.xplane.pb that training with --profile-steps writes: then the time is what was measured.
    """
    from generator.commands.cost import as_data, tables
    from generator.commands.tables import plain
    from generator.disk.project import Project
    from generator.running.cost import cost_of, cost_of_profile
    from generator.running.hlo import is_program, read_program
    from generator.running.origins import Origins

    origins = Origins(Project.find())
    if is_program(file):
        cost = cost_of(read_program(file), origins)
    else:
        from generator.running.profile import read_profile  # imports JAX

        cost = cost_of_profile(read_profile(file), origins)
    if as_json:
        write_json(as_data(cost))
    else:
        click.echo("\n\n".join(plain(table) for table in tables(cost)))
    if not cost.spent.total():
        _note(["the program has no estimates of cycles: those for TPUs have them"])
    if cost.guessed:
        _note([f"{cost.guessed} loops or branches do not say how often they run: see docs/running.md"])
    _note(f"{file}: {'; '.join(woven.notes)}" for file, woven in cost.woven.items() if woven.notes)
    _note(map(str, origins.problems.values()))


def _note(texts: Iterable[str]) -> None:
    for text in texts:
        click.echo(f"note: {text}", err=True)
