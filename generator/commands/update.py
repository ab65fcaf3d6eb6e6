"""`gen update`: merges later changes of the fragments into a package that was edited."""

from __future__ import annotations

import click

from generator.commands.console import AS_JSON, exit_codes, write_json
from generator.commands.own import find_listed_package
from generator.commands.packages import create_builder
from generator.commands.threeway import Conflict, Texts, WovenSide, describe_conflicts, merge_files, write_texts
from generator.disk.built import BASE, MappedPackage, find_base_texts, format_base
from generator.disk.files import display_path, kind_of, read_plain_file
from generator.disk.git import find_conflict_mark
from generator.disk.lock import LOCK, MAP, read_lock
from generator.disk.project import Project
from generator.disk.write import replace_file, write_records
from generator.errors import LoomError


@click.command("update", **exit_codes("1 there are conflicts"))
@click.argument("package", metavar="PACKAGE")
@AS_JSON
def command(package: str, as_json: bool) -> None:
    """Merge what the fragments bring into a package that people own, or that was edited.

    The merge has three sides: the package, the text of the last build or update, and what is woven now. Conflicts have
    git's markers, each with the fragment and the commit that made the other side.
    """
    project = Project.find()
    built = find_listed_package(project, package)
    changed, conflicts = update_package(project, built)
    has_tests = any(path.startswith("tests/") for path in read_lock(built.folder).outputs)
    tests = f"cd {display_path(project.generated)} && python -m pytest {built.name}" if has_tests else ""
    if as_json:
        rows = [conflict._asdict() for conflict in conflicts]
        write_json({"shown": built.label, "changed": changed, "conflicts": rows, "tests": tests})
    else:
        for path in changed:
            click.echo(f"merged   {built.label}/{path}")
        for line in describe_conflicts(conflicts, built.label):
            click.echo(line)
        if not changed:
            click.echo(f"{built.label}: the fragments bring nothing new")
        elif tests:
            click.echo(f"{'decide the conflicts, then ' if conflicts else ''}run its tests: {tests}")
    if conflicts:
        raise click.exceptions.Exit(1)


def update_package(project: Project, built: MappedPackage) -> tuple[list[str], list[Conflict]]:
    """Merges what is woven now into a package; the base is the text of the last build or update.

    Returns:
        The paths that changed, and the conflicts.
    """
    files = create_builder(project, built.lock.combination).weave_files()
    woven = {path: data.decode() for path, data in files.items() if path not in (LOCK, MAP)}
    base = find_base_texts(built.folder, built.lock, lambda: woven)
    ours: Texts = {}
    for path in sorted(base.keys() | woven.keys()):
        ours[path] = read_plain_file(built.folder / path) if kind_of(built.folder / path) else None
        if line := find_conflict_mark(ours[path] or ""):
            remedy = "Decide it, take the marks out, then update."
            raise LoomError("a conflict was left here", f"{built.label}/{path}:{line}", remedy)
    theirs = WovenSide(woven, woven, files[MAP].decode(), project.roots)
    merged, conflicts = merge_files(ours, base, theirs, built.name)
    changed = {path: text for path, text in merged.items() if text != ours.get(path)}
    write_texts(built.folder, changed)
    is_owned = built.lock.combination in project.listing.owned
    if is_owned and format_base(files) != format_base({path: text.encode() for path, text in base.items()}):
        replace_file(built.folder, BASE, format_base(files))
    write_records(built.folder, files)
    return list(changed), conflicts
