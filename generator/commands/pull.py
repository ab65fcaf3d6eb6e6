"""Carries the edits of a package back to the fragments, and builds what they change."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click

from generator.commands.against import PackagePair, Report, compare_sides, format_text
from generator.commands.console import AS_JSON, complain, exit_codes, progress, write_json
from generator.commands.findings import is_unmanaged, read_unmanaged_paths
from generator.commands.packages import PackageBuilder, map_packages
from generator.commands.pull_as import find_named, of_gen, read_own, with_own
from generator.disk.built import BASE, find_package, format_base
from generator.disk.files import display_path, kind_of, list_entries, read_plain_file, sha256
from generator.disk.lock import LOCK, MAP, Combination, InputDigests, encode_package
from generator.disk.parallel import run_parallel
from generator.disk.project import Project
from generator.disk.status import compare_with_disk
from generator.disk.write import replace_file, write_records
from generator.errors import LoomError
from generator.package.package import Package
from generator.pull.apart import NewFragment, without_head
from generator.pull.edited import find_edits
from generator.pull.offered import check_offers
from generator.pull.pull import Pulled, pull
from generator.recipe.library import Library


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
@click.option(
    "--verdicts", "judged", is_flag=True, help="Say what it means for each package, as gen diff --against does."
)
@AS_JSON
def command(
    package: str, applied: bool, own: str | None, lines: tuple[str, ...], title: str, judged: bool, as_json: bool
) -> None:
    """Carry the edits of a package back to the fragments that its lines came from.

    Shows the diff of the fragments, the other packages that they change, and the edits that cannot go home, each with
    the reason. An edit goes home only if building then gives back exactly the edited package. An edit that is refused
    stays in the package, which gen check then reports as edited.
    """
    if own is None and (lines or title):
        raise LoomError("--line and --title are for a fragment", None, "Name it: --as fragments/FOLDER/NAME.py.")
    project = Project.find()
    found = plan_pull(project, package, own, title, lines)
    rows = refused(found)
    reports = []
    if judged and found.pulled.texts:
        reports = verdicts(project, found, lambda line: click.echo(line, err=True))
    if as_json:
        table = {"diff": found.diff(project), "home": len(found.pulled.home), "refused": rows}
        table |= {"others": [other._asdict() for other in found.others]}
        write_json(table | ({"packages": [describe.as_table() for describe in reports]} if judged else {}))
    else:
        click.echo(found.diff(project), nl=False)
        click.echo("\n".join(describe(found)))
        if reports:
            click.echo("\n" + format_text("what the fragments make now", reports))
    failed = False
    results = apply_plan(project, found) if applied and found.pulled.texts else []
    for number, (name, result) in enumerate(results, 1):
        if isinstance(result, LoomError):
            complain(result)
            failed = True
        else:
            done = "owned, left alone" if result is None else result.summary
            done = f"{len(result.blocked)} edited, left as they are" if result and result.blocked else done
            progress(number, len(results), f"{name}: {done}")
    if failed or rows:
        raise click.exceptions.Exit(2 if failed else 1)


class ChangedPackage(NamedTuple):
    """Another package that the changed fragments change.

    Attributes:
        files: that a build would change.
        edited: files that someone changed, which a build would not write over.
    """

    name: str
    files: tuple[str, ...]
    edited: tuple[str, ...]


class PullPlan(NamedTuple):
    """What a pull does, before anything is written."""

    builder: PackageBuilder
    pulled: Pulled
    others: list[ChangedPackage]
    own: NewFragment | None = None

    def diff(self, project: Project) -> str:
        """Gives the unified diff of the fragments."""
        texts, lines = project.library().files, list[str]()
        for path, after in self.pulled.texts.items():
            names = (f"a/{path}" if path in texts else "/dev/null"), f"b/{path}"
            lines += difflib.unified_diff(texts.get(path, "").splitlines(), after.splitlines(), *names, lineterm="")
        return "".join(f"{line}\n" for line in lines)


def plan_pull(
    project: Project, word: str, path: str | None = None, title: str = "", lines: tuple[str, ...] = ()
) -> PullPlan:
    """Finds what pulling a package would do.

    Args:
        word: its name or its folder.
        path, title: of a fragment for edits that the package's architecture alone gets.
        lines: the places of these edits; none for all that cannot go home.
    """
    built = find_package(project, word)
    combination = built.lock.combination
    builder = PackageBuilder(project, combination, InputDigests(project.roots), built.folder.resolve().parent)
    if combination.name not in (built.folder.name, built.folder.resolve().name):
        raise LoomError(
            f"is a copy of {combination.name}", built.label, f"Give the folder the name {combination.name}."
        )
    package = builder.weave()
    late = [path for path, text in package.files.items() if sha256(text.encode()) != built.lock.outputs.get(path)]
    if late or built.lock.outputs.keys() - package.files.keys() - {MAP}:
        remedy = f"Take in what they bring: gen update {word}; then pull again."
        raise LoomError("its fragments changed since it was built", f"{built.label}/{(late or [LOCK])[0]}", remedy)
    there, before = _on_disk(builder), project.library()
    edited = find_edits(package.files, there)
    own = read_own(project, combination, path, title) if path is not None else None
    named = find_named(lines, edited, builder.folder) if own else []

    def weave(library: Library) -> Package:
        for path, text in library.files.items():
            if text != before.files[path] and not (project.root / path).is_file():
                raise LoomError("is part of gen and not of this project", path, _keep(project, combination))
        made = builder.weave(library)
        check_offers(before, library)
        return made

    pulled = pull(package, edited._replace(hunks=[h for h in edited.hunks if h not in named]), before, weave)
    others = _others(project, combination, pulled.texts) if pulled.texts else []
    if own is None:
        return PullPlan(builder, pulled, others)
    apart = with_own(builder, pulled, there, own, named)
    format_text = {path: before.files[path] for path in apart.texts if path in before.files} | pulled.texts
    known = _others(project, combination, format_text)
    if changed := [other.name for other in _others(project, combination, apart.texts) if other not in known]:
        remedy = "Write the fragment by hand, and select it where it is for."
        raise LoomError(f"it would change {', '.join(changed)} too", own.path, remedy)
    return PullPlan(builder, apart, others, own)


def _on_disk(builder: PackageBuilder) -> dict[str, bytes | str]:
    """What is in the folder of a package, without what gen keeps there for itself and what is named as one's own."""
    own = read_unmanaged_paths(builder.project)
    found: dict[str, bytes | str] = {}
    for path in list_entries(builder.folder):
        kind = kind_of(builder.folder / path)
        if path not in (LOCK, MAP, BASE) and not is_unmanaged(f"{builder.combination.name}/{path}", own):
            found[path] = (builder.folder / path).read_bytes() if kind == "file" else kind
    return found


def _keep(project: Project, combination: Combination) -> str:
    """Says what to do with an edit of a fragment that comes with gen."""
    if (project.root / f"templates/architectures/{combination.architecture}.toml").is_file():
        return f"Keep it in the package: gen own {combination.name}."
    return of_gen(combination)


def _others(project: Project, combination: Combination, texts: dict[str, str]) -> list[ChangedPackage]:
    """Finds the other packages that change with these texts of sources."""
    prints = InputDigests(project.roots)
    kept = [c for c in project.packages() if c != combination and c not in project.listing.owned]
    builder = [one for c in kept if (one := PackageBuilder(project, c, prints, project.generated)).may_use(texts)]
    result = []
    for one, other in zip(
        builder, run_parallel(_other, [(one, texts) for one in builder], [True] * len(builder)), strict=True
    ):
        if isinstance(other, LoomError):
            remedy = f"Change the fragments by hand so that both can be woven. {other.remedy or ''}".strip()
            message = f"with these changes {one.combination.name} cannot be woven: {other.message}"
            raise LoomError(message, other.where, remedy)
        if other:
            result.append(other)
    return result


def _other(builder: PackageBuilder, texts: dict[str, str]) -> ChangedPackage | None:
    """Compares another package with what a build would then make; None where nothing changes."""
    if not kind_of(builder.folder) and not builder.is_lock_only:
        return None
    made = builder.weave(builder.project.library().with_texts(texts)).files
    wanted = {path: sha256(text.encode()) for path, text in made.items()}
    found = compare_with_disk(builder.folder, builder.combination, wanted, builder.is_lock_only)
    files = tuple(path for path in [*found.to_write, *found.to_remove] if path not in (LOCK, MAP))
    return (
        ChangedPackage(builder.combination.name, files, tuple(file.path for file in found.blocked)) if files else None
    )


def apply_plan(project: Project, found: PullPlan) -> list[tuple[str, Any]]:
    """Writes the fragments, then builds: the package itself keeps the edits that did not go home.

    Returns:
        For each other package its name, and what building it gave.
    """
    if edited := [other for other in found.others if other.edited]:
        names = ", ".join(f"{other.name} ({', '.join(other.edited)})" for other in edited)
        remedy = "Pull or give up those edits first; nothing was written."
        raise LoomError(f"these fragments also make packages that were edited too: {names}", None, remedy)
    for path, text in found.pulled.texts.items():
        _write(project.root / path, text)
    project.forget_library()
    builder = PackageBuilder(project, found.builder.combination, InputDigests(project.roots), found.builder.out)
    made = builder.weave_files()
    left = {refusal.path for refusal in found.pulled.refusals}
    for path in found.pulled.package.origins.keys() - left if found.own else ():
        text = made[path].decode()
        if without_head(read_plain_file(builder.folder / path)) == without_head(
            text
        ):  # the comments there name the fragment
            replace_file(builder.folder, path, made[path])
    if builder.is_owned:  # what is merged next comes on top of this
        replace_file(builder.folder, BASE, format_base(made))
    write_records(builder.folder, made)
    return list(map_packages(PackageBuilder.build, project, False, False, True))


def _write(path: Path, text: str) -> None:
    """Writes a source, with the line ends that it has."""
    data = text.encode()
    if path.exists() and b"\r\n" in path.read_bytes():
        data = data.replace(b"\n", b"\r\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.tmp")
    scratch.write_bytes(data)
    os.replace(scratch, path)


def refused(found: PullPlan) -> list[dict[str, str]]:
    """Gives the refusals, each with its place."""
    rows = []
    for path, line, reason, remedy in found.pulled.refusals:
        place = f"{display_path(found.builder.folder)}/{path}" + (f":{line}" if line else "")
        rows.append({"place": place, "reason": reason, "remedy": remedy})
    return rows


def describe(found: PullPlan) -> list[str]:
    """Gives the lines that a person reads below the diff."""
    shown, home, refusals = display_path(found.builder.folder), len(found.pulled.home), refused(found)
    if not home and not refusals:
        return [f"{shown}: no edits"]
    count = sum(path.startswith("fragments/") for path in found.pulled.texts)
    to = f", to {count} fragment{'' if count == 1 else 's'}" if count else ""
    lines = [f"{shown}: {home} of {home + len(refusals)} edits go home{to}"]
    if own := found.own:
        file = f"templates/architectures/{found.builder.combination.architecture}.toml"
        table = f"[{'.'.join(own.table)}] of {file}" if own.table else file
        lines.append(f"{own.path} is new: {table} selects it, and no other package changes for it")
    if found.others:
        lines.append(f"also changes {', '.join(other.name for other in found.others)}")
    for other in found.others:
        if other.edited:
            lines.append(f"{other.name} was edited too ({', '.join(other.edited)}): --apply will refuse")
    for one in refusals:
        lines.append(f"refused  {one['place']}: {one['reason']}\n         {one['remedy']}")
    return lines


def verdicts(project: Project, found: PullPlan, say: Callable[[str], None]) -> list[Report]:
    """Reports what the pull means for each package that it changes, the edited one too, by program."""
    edited = found.builder.combination
    names = {edited.name, *(other.name for other in found.others)}
    prints = InputDigests(project.roots)
    listed = dict.fromkeys([*project.packages(), edited])  # which need not be in the list
    changed = [PackageBuilder(project, each, prints, project.generated) for each in listed if each.name in names]
    rows = [(builder, found.pulled.texts) for builder in changed]
    sides = []
    for builder, woven in zip(changed, run_parallel(_sides, rows, [True] * len(rows)), strict=True):
        if isinstance(woven, LoomError):
            raise woven
        sides.append(PackagePair(builder.combination, *woven))
    return compare_sides(sides, say)


def _sides(builder: PackageBuilder, texts: dict[str, str]) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The files of a package as its fragments make it now, and with other texts of some."""
    changed = builder.weave(builder.project.library().with_texts(texts))
    return builder.weave_files(), encode_package(changed, builder.digests)
