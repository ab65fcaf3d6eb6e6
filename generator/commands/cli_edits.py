"""The command line of edits: `gen pull`, `gen own`, `gen update` and `gen merge`."""

from __future__ import annotations

import click

from generator.commands.console import AS_JSON, NO_ONE, complain, exit_codes, progress, write_json
from generator.errors import LoomError


@click.command("pull", **exit_codes("1 an edit was refused"))
@click.argument("package", metavar="PACKAGE")
@click.option("--apply", "applied", is_flag=True, help="Write the fragments, and build what they change.")
@click.option(
    "--as",
    "own",
    metavar="fragments/FOLDER/NAME.py",
    help="Write a new fragment, which this architecture alone selects, for the edits that cannot go home.",
)
@click.option("--line", "lines", multiple=True, metavar="FILE:LINE", help="With --as: for this edit; repeatable.")
@click.option("--title", default="", help="With --as: the first line of the fragment's docstring.")
@click.option("--verdicts", is_flag=True, help="Say what it means for each package, as gen diff --against does.")
@AS_JSON
def pull_(
    package: str,
    applied: bool,
    own: str | None,
    lines: tuple[str, ...],
    title: str,
    verdicts: bool,
    as_json: bool,
) -> None:
    """Carry the edits of a package back to the fragments that its lines came from.

    Shows the diff of the fragments, the other packages that they change, and the edits that cannot go home, each with
    the reason. An edit goes home only if building then gives back exactly the edited package. An edit that is refused
    stays in the package, which gen check then reports as edited.
    """
    from generator.commands import pull
    from generator.disk.project import Project

    if own is None and (lines or title):
        raise LoomError("--line and --title are for a fragment", None, "Name it: --as fragments/FOLDER/NAME.py.")
    project = Project.find()
    found = pull.find(project, package, own, title, lines)
    refused = pull.refused(found)
    reports = []
    if verdicts and found.pulled.texts:
        reports = pull.verdicts(project, found, lambda line: click.echo(line, err=True))
    if as_json:
        table = {"diff": found.diff(project), "home": len(found.pulled.home), "refused": refused}
        table |= {"others": [other._asdict() for other in found.others]}
        write_json(table | ({"packages": [report.as_table() for report in reports]} if verdicts else {}))
    else:
        from generator.commands.against import plain

        click.echo(found.diff(project), nl=False)
        click.echo("\n".join(pull.report(found)))
        if reports:
            click.echo("\n" + plain("what the fragments make now", reports))
    failed = False
    results = pull.apply(project, found) if applied and found.pulled.texts else []
    for number, (name, result) in enumerate(results, 1):
        if isinstance(result, LoomError):
            complain(result)
            failed = True
        else:
            done = "owned, left alone" if result is None else result.summary
            done = f"{len(result.blocked)} edited, left as they are" if result and result.blocked else done
            progress(number, len(results), f"{name}: {done}")
    if failed or refused:
        raise click.exceptions.Exit(2 if failed else 1)


@click.command("own", **NO_ONE)
@click.argument("package", metavar="PACKAGE")
def own_(package: str) -> None:
    """Declare that a package is edited by hand from now on.

    Writes by_hand = true to packages.toml: gen check then counts the lines that were changed and does not fail, and gen
    build leaves the package alone. The text that was woven stays in gen.base, for gen update to merge with.
    """
    from generator.commands.own import own
    from generator.disk.project import Project

    click.echo(own(Project.find(), package))


@click.command("update", **exit_codes("1 there are conflicts"))
@click.argument("package", metavar="PACKAGE")
@AS_JSON
def update_(package: str, as_json: bool) -> None:
    """Merge what the fragments bring into a package that people own, or that was edited.

    The merge has three sides: the package, what was woven when it was last built or updated, and what is woven now.
    Conflicts are left as git leaves them, each with the fragment and the commit that made the other side.
    """
    from generator.commands.update import describe, update
    from generator.disk.project import Project

    done = update(Project.find(), package)
    if as_json:
        write_json({**done._asdict(), "conflicts": [one._asdict() for one in done.conflicts]})
    else:
        for path in done.changed:
            click.echo(f"merged   {done.shown}/{path}")
        for line in describe(done.conflicts, done.shown):
            click.echo(line)
        if not done.changed:
            click.echo(f"{done.shown}: the fragments bring nothing new")
        elif done.tests:
            click.echo(f"{'decide the conflicts, then ' if done.conflicts else ''}run its tests: {done.tests}")
    if done.conflicts:
        raise click.exceptions.Exit(1)


@click.command("merge", **exit_codes("1 something is left to decide"))
@click.option(
    "--driver", nargs=4, metavar="BASE OURS THEIRS PATH", help="What git runs for a file: see docs/editing.md."
)
def merge_(driver: tuple[str, str, str, str] | None) -> None:
    """Finish a merge of git: weave the packages from the merged fragments.

    Run it where git merge, rebase or cherry-pick has stopped. Fragments that conflict come first, and are named. What
    was edited by hand in a package, on either side, is merged into what is woven. Then commit as git says.
    """
    from pathlib import Path

    from generator.commands.merge import drive, finish, left_to_decide
    from generator.commands.update import describe
    from generator.disk.project import Project

    project = Project.find()
    if driver:
        base, ours, theirs = map(Path, driver[:3])
        raise click.exceptions.Exit(drive(project, base, ours, theirs, driver[3]))
    results, left, failed = finish(project), False, False
    for name, found in results:
        if isinstance(found, LoomError):
            complain(found)
            failed = True
            continue
        for line in describe(found.conflicts, project.show(project.generated / name)):
            click.echo(line)
        left = left or bool(found.conflicts)
        for path in found.edited:
            click.echo(f"edited   {project.show(project.generated / name)}/{path}: the edit is kept; gen pull {name}")
    for place in left_to_decide(project):
        click.echo(f"conflict {place}: in a package that people own")
        left = True
    woven = sum(not isinstance(found, LoomError) for _, found in results)
    click.echo(f"{woven} package{'' if woven == 1 else 's'} woven from the merged fragments")
    if left or failed:
        raise click.exceptions.Exit(2 if failed else 1)
