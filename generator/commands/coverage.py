"""`gen coverage`: reports the fragment lines that nothing executed in any package."""

from __future__ import annotations

from pathlib import Path

import click

from generator.commands.console import AS_JSON, PATH, exit_codes, note
from generator.disk.project import Project
from generator.errors import LoomError
from generator.running.woven_files import WovenFiles


def _not_nan(_: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value != value:  # nan, which every comparison would pass
        raise click.BadParameter("nan is not a number.", param=parameter)
    return value


@click.command("coverage", **exit_codes("1 less is executed than --fail-under"))
@click.argument("data", metavar="DATA...", nargs=-1, required=True, type=PATH)
@click.option("--fail-under", metavar="PERCENT", type=click.FloatRange(0, 100), callback=_not_nan, help="The least.")
@click.option("--html", metavar="DIR", type=PATH, help="Write pages that show the lines, too.")
@AS_JSON
def command(data: tuple[Path, ...], fail_under: float | None, html: Path | None, as_json: bool) -> None:
    """Report the fragment lines that nothing executed in any package, with the reports of coverage.py.

    DATA are data files of coverage.py of runs of packages: of their tests, say. A line counts if it makes a statement
    in one of these packages.
    """
    from generator.running.coverage import read_covered, write_report  # late: coverage.py may not be installed

    project = Project.find()
    woven = WovenFiles(project)
    covered = read_covered(list(data), woven)
    if not covered.lines:
        remedy = "Run them from the folder of the packages, on packages as they were woven."
        raise LoomError("the data are of no woven file", str(data[0]), remedy)
    percent = write_report(covered, woven, html, as_json)
    sources = (path for path in project.library().files if path.startswith("fragments/") and path.endswith(".py"))
    note(f"{path} is in no package of the data" for path in sorted(sources) if path not in covered.sources)
    note(f"{len(set(files))} files do not count, as they {why}: {files[0]}" for why, files in covered.ignored.items())
    note(map(str, woven.problems.values()))
    if fail_under is not None and percent < fail_under:
        click.echo(f"{percent:.2f} % is less than {fail_under:g} %", err=True)
        raise click.exceptions.Exit(1)
