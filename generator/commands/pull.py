"""`gen pull`: carries the edits of a package back to the fragments, and builds what they change."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click

from generator.commands.against import PackagePair, Report, compare_pairs, reports_as_text
from generator.commands.console import AS_JSON, complain, exit_codes, progress, write_json
from generator.commands.findings import is_unmanaged, read_unmanaged_paths
from generator.commands.packages import PackageBuilder, create_builders, map_packages
from generator.commands.pull_as import add_fragment, advise_on_gen_file, find_hunks, read_new_fragment
from generator.disk.built import BASE, find_package, format_base
from generator.disk.files import display_path, kind_of, list_entries, read_plain_file, sha256
from generator.disk.lock import LOCK, MAP, Combination, InputDigests, encode_package
from generator.disk.parallel import run_parallel
from generator.disk.project import Project
from generator.disk.status import compare_with_disk
from generator.disk.write import replace_file, write_records
from generator.errors import LoomError
from generator.package.package import Package
from generator.pull.edits import find_edits
from generator.pull.join_points import check_shown_names
from generator.pull.new_fragment import NewFragment, without_header
from generator.pull.pull import PullResult, pull
from generator.pull.refusals import OF_GEN
from generator.recipe.library import Library

AS_HELP = "Write a new fragment, which this architecture alone selects, for the edits that cannot go home."
VERDICTS_HELP = "Say what it means for each package, as gen diff --against does."


@click.command("pull", **exit_codes("1 an edit was refused"))
@click.argument("package", metavar="PACKAGE")
@click.option("--apply", "is_applied", is_flag=True, help="Write the fragments, and build what they change.")
@click.option("--as", "fragment", metavar="fragments/FOLDER/NAME.py", help=AS_HELP)
@click.option("--line", "lines", multiple=True, metavar="FILE:LINE", help="With --as: for this edit; repeatable.")
@click.option("--title", default="", help="With --as: the first line of the fragment's docstring.")
@click.option("--verdicts", "with_verdicts", is_flag=True, help=VERDICTS_HELP)
@AS_JSON
def command(
    package: str,
    is_applied: bool,
    fragment: str | None,
    lines: tuple[str, ...],
    title: str,
    with_verdicts: bool,
    as_json: bool,
) -> None:
    """Carry the edits of a package back to the fragments that its lines came from.

    Shows the diff of the fragments, the other packages that they change, and the edits that cannot go home, each with
    the reason. An edit goes home only if building then gives back exactly the edited package. An edit that is refused
    stays in the package, which gen check then reports as edited.
    """
    if fragment is None and (lines or title):
        raise LoomError("--line and --title are for a fragment", None, "Name it: --as fragments/FOLDER/NAME.py.")
    project = Project.find()
    plan = plan_pull(project, package, fragment, title, lines)
    reports = []
    if with_verdicts and plan.result.texts:
        reports = _compare_packages(project, plan, lambda line: click.echo(line, err=True))
    if as_json:
        table = {"diff": plan.diff(project), "home": len(plan.result.accepted), "refused": plan.refusals}
        table |= {"others": [other._asdict() for other in plan.others]}
        write_json(table | ({"packages": [report.as_table() for report in reports]} if with_verdicts else {}))
    else:
        click.echo(plan.diff(project), nl=False)
        click.echo("\n".join(_summarize(plan)))
        if reports:
            click.echo("\n" + reports_as_text("what the fragments make now", reports))
    failed = False
    results = apply_plan(project, plan) if is_applied and plan.result.texts else []
    for number, (name, status) in enumerate(results, 1):
        if isinstance(status, LoomError):
            complain(status)
            failed = True
        else:
            done = "owned, left alone" if status is None else status.summary
            done = f"{len(status.blocked)} edited, left as they are" if status and status.blocked else done
            progress(number, len(results), f"{name}: {done}")
    if failed or plan.refusals:
        raise click.exceptions.Exit(2 if failed else 1)


class ChangedPackage(NamedTuple):
    """Another package that the changed fragments change.

    Attributes:
        files: those that a build would change.
        edited: those that someone edited, so that a build would not overwrite them.
    """

    name: str
    files: tuple[str, ...]
    edited: tuple[str, ...]


class PullPlan(NamedTuple):
    """A pull before anything is written.

    Attributes:
        fragment: the new one, with `--as`.
    """

    builder: PackageBuilder
    result: PullResult
    others: list[ChangedPackage]
    fragment: NewFragment | None = None

    @property
    def refusals(self) -> list[dict[str, str]]:
        """Returns place, reason and remedy of each refusal."""
        rows = []
        for path, line, reason, remedy in self.result.refusals:
            place = f"{display_path(self.builder.folder)}/{path}" + (f":{line}" if line else "")
            rows.append({"place": place, "reason": reason, "remedy": remedy})
        return rows

    def diff(self, project: Project) -> str:
        """Returns the unified diff of the fragments."""
        texts, lines = project.library().files, list[str]()
        for path, after in self.result.texts.items():
            names = (f"a/{path}" if path in texts else "/dev/null"), f"b/{path}"
            lines += difflib.unified_diff(texts.get(path, "").splitlines(), after.splitlines(), *names, lineterm="")
        return "".join(f"{line}\n" for line in lines)


def plan_pull(
    project: Project, word: str, path: str | None = None, title: str = "", lines: tuple[str, ...] = ()
) -> PullPlan:
    """Plans the pull of a package.

    Args:
        word: the package's name or folder.
        path, title: of a new fragment for edits that only the package's architecture gets.
        lines: FILE:LINE of these edits; empty for all that cannot go home.
    """
    built = find_package(project, word)
    combination = built.lock.combination
    builder = PackageBuilder(project, combination, InputDigests(project.roots), built.folder.resolve().parent)
    if combination.name not in (built.folder.name, built.folder.resolve().name):
        remedy = f"Give the folder the name {combination.name}."
        raise LoomError(f"is a copy of {combination.name}", built.label, remedy)
    package = builder.weave()
    stale = [path for path, text in package.files.items() if sha256(text.encode()) != built.lock.outputs.get(path)]
    if stale or built.lock.outputs.keys() - package.files.keys() - {MAP}:
        remedy = f"Take in what they bring: gen update {word}; then pull again."
        raise LoomError("its fragments changed since it was built", f"{built.label}/{(stale or [LOCK])[0]}", remedy)
    on_disk, library = _read_package(builder), project.library()
    edits = find_edits(package.files, on_disk)
    fragment = read_new_fragment(project, combination, path, title) if path is not None else None
    chosen = find_hunks(lines, edits, builder.folder) if fragment else []

    def weave(changed: Library) -> Package:
        for path, text in changed.files.items():
            if text != library.files[path] and not (project.root / path).is_file():
                remedy = advise_on_gen_file(project, combination)
                raise LoomError(OF_GEN, path, remedy)
        rewoven = builder.weave(changed)
        check_shown_names(library, changed)
        return rewoven

    remaining = edits._replace(hunks=[hunk for hunk in edits.hunks if hunk not in chosen])
    result = pull(package, remaining, library, weave)
    others = _changed_packages(project, combination, result.texts) if result.texts else []
    if fragment is None:
        return PullPlan(builder, result, others)
    extended = add_fragment(builder, result, on_disk, fragment, chosen)
    # the same sources without the fragment
    unchanged = {path: library.files[path] for path in extended.texts if path in library.files} | result.texts
    expected = _changed_packages(project, combination, unchanged)
    if more := [one.name for one in _changed_packages(project, combination, extended.texts) if one not in expected]:
        remedy = "Write the fragment by hand, and select it where it is for."
        raise LoomError(f"it would change {', '.join(more)} too", fragment.path, remedy)
    return PullPlan(builder, extended, others, fragment)


def _read_package(builder: PackageBuilder) -> dict[str, bytes | str]:
    """Returns the files in a package's folder, without gen's records and those listed as one's own."""
    name, folder, own = builder.combination.name, builder.folder, read_unmanaged_paths(builder.project)
    paths = [path for path in list_entries(folder) if path not in (LOCK, MAP, BASE)]
    kinds = {path: kind_of(folder / path) for path in paths if not is_unmanaged(f"{name}/{path}", own)}
    return {path: (folder / path).read_bytes() if kind == "file" else kind for path, kind in kinds.items()}


def _changed_packages(project: Project, combination: Combination, texts: dict[str, str]) -> list[ChangedPackage]:
    """Returns the packages besides one that change with these texts of sources."""
    left_alone = [combination, *project.listing.owned]
    builders = [one for one in create_builders(project) if one.combination not in left_alone and one.may_use(texts)]
    jobs = [(builder, texts) for builder in builders]
    result = []
    for builder, changed in zip(builders, run_parallel(_changed_package, jobs, [True] * len(jobs)), strict=True):
        if isinstance(changed, LoomError):
            remedy = f"Change the fragments by hand so that both can be woven. {changed.remedy or ''}".strip()
            message = f"with these changes {builder.combination.name} cannot be woven: {changed.message}"
            raise LoomError(message, changed.where, remedy)
        if changed:
            result.append(changed)
    return result


def _changed_package(builder: PackageBuilder, texts: dict[str, str]) -> ChangedPackage | None:
    """Compares a package on disk with a build from changed sources; returns None if they are equal."""
    if not kind_of(builder.folder) and not builder.is_lock_only:
        return None
    package = builder.weave(builder.project.library().with_texts(texts))
    hashes = {path: sha256(text.encode()) for path, text in package.files.items()}
    status = compare_with_disk(builder.folder, builder.combination, hashes, builder.is_lock_only)
    files = tuple(path for path in [*status.to_write, *status.to_remove] if path not in (LOCK, MAP))
    edited = tuple(file.path for file in status.blocked)
    return ChangedPackage(builder.combination.name, files, edited) if files else None


def apply_plan(project: Project, plan: PullPlan) -> list[tuple[str, Any]]:
    """Writes the fragments and builds the packages; the pulled package keeps its refused edits.

    Returns:
        Name of each other package, and the result of its build.
    """
    if edited := [other for other in plan.others if other.edited]:
        names = ", ".join(f"{other.name} ({', '.join(other.edited)})" for other in edited)
        remedy = "Pull or give up those edits first; nothing was written."
        raise LoomError(f"these fragments also make packages that were edited too: {names}", None, remedy)
    for path, text in plan.result.texts.items():
        _write_source(project.root / path, text)
    project.forget_library()
    builder = PackageBuilder(project, plan.builder.combination, InputDigests(project.roots), plan.builder.out)
    files, folder = builder.weave_files(), builder.folder
    refused = {refusal.path for refusal in plan.result.refusals}
    for path in plan.result.package.origins.keys() - refused if plan.fragment else ():
        # the comments at the top name the new fragment
        if without_header(read_plain_file(folder / path)) == without_header(files[path].decode()):
            replace_file(folder, path, files[path])
    if builder.is_owned:  # the base of the next merge
        replace_file(folder, BASE, format_base(files))
    write_records(folder, files)
    return list(map_packages(PackageBuilder.build, project, False, False, True))


def _write_source(path: Path, text: str) -> None:
    """Writes a source atomically, with the line ends that it has."""
    data = text.encode()
    if path.exists() and b"\r\n" in path.read_bytes():
        data = data.replace(b"\n", b"\r\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.tmp")
    scratch.write_bytes(data)
    os.replace(scratch, path)


def _summarize(plan: PullPlan) -> list[str]:
    """Returns the lines that a person reads below the diff."""
    folder, accepted, refusals = display_path(plan.builder.folder), len(plan.result.accepted), plan.refusals
    if not accepted and not refusals:
        return [f"{folder}: no edits"]
    count = sum(path.startswith("fragments/") for path in plan.result.texts)
    to = f", to {count} fragment{'' if count == 1 else 's'}" if count else ""
    lines = [f"{folder}: {accepted} of {accepted + len(refusals)} edits go home{to}"]
    if fragment := plan.fragment:
        file = f"templates/architectures/{plan.builder.combination.architecture}.toml"
        table = f"[{'.'.join(fragment.table)}] of {file}" if fragment.table else file
        lines.append(f"{fragment.path} is new: {table} selects it, and no other package changes for it")
    if plan.others:
        lines.append(f"also changes {', '.join(other.name for other in plan.others)}")
    for other in plan.others:
        if other.edited:
            lines.append(f"{other.name} was edited too ({', '.join(other.edited)}): --apply will refuse")
    return lines + [f"refused  {one['place']}: {one['reason']}\n         {one['remedy']}" for one in refusals]


def _compare_packages(project: Project, plan: PullPlan, say: Callable[[str], None]) -> list[Report]:
    """Returns the verdicts on each package that the pull changes, the edited one included."""
    edited = plan.builder.combination
    names = {edited.name, *(other.name for other in plan.others)}
    builders = [builder for builder in create_builders(project) if builder.combination.name in names]
    if edited not in project.packages():
        builders.append(plan.builder)
    jobs = [(builder, plan.result.texts) for builder in builders]
    pairs = []
    for builder, files in zip(builders, run_parallel(_weave_both, jobs, [True] * len(jobs)), strict=True):
        if isinstance(files, LoomError):
            raise files
        pairs.append(PackagePair(builder.combination, *files))
    return compare_pairs(pairs, say)


def _weave_both(builder: PackageBuilder, texts: dict[str, str]) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Returns the files of a package as its sources make them now, and with some texts changed."""
    changed = builder.weave(builder.project.library().with_texts(texts))
    return builder.weave_files(), encode_package(changed, builder.digests)
