"""`gen merge`: weaves packages from the merged fragments, instead of merging the lines of packages.

While git merges, a driver keeps our side of each generated file that both sides changed, and leaves it unmerged: the
fragments may not be merged yet. `gen merge` then weaves, and merges the edits of both sides into the result.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import click

from generator.commands.console import complain, exit_codes
from generator.commands.packages import PackageBuilder, map_packages
from generator.commands.threeway import Conflict, Texts, WovenSide, describe_conflicts, merge_files, write_texts
from generator.disk.built import BASE
from generator.disk.files import display_path, kind_of, read_if_file, sha256
from generator.disk.git import (
    find_conflict_mark,
    find_old_version,
    find_repository_root,
    list_diff,
    list_paths,
    merge_texts,
    read_packages_at,
    run_git,
)
from generator.disk.lock import LOCK, LOCKS, MAP, Combination, parse_lock
from generator.disk.project import PACKAGES, Project
from generator.disk.write import IGNORE, update_uncommitted_records, write_package, write_records
from generator.errors import LoomError
from generator.recipe.library import FOLDERS

HEADS = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REBASE_HEAD", "REVERT_HEAD")
RECORDS = (LOCK, MAP, BASE)


@click.command("merge", **exit_codes("1 something is left to decide"))
@click.option(
    "--driver", nargs=4, metavar="BASE OURS THEIRS PATH", help="What git runs for a file: see docs/editing.md."
)
def command(driver: tuple[str, str, str, str] | None) -> None:
    """Finish a merge of git: weave the packages from the merged fragments.

    Run it where git merge, rebase or cherry-pick has stopped. Fragments that conflict come first, and are named. What
    was edited by hand in a package, on either side, is merged into what is woven. Then commit as git says.
    """
    project = Project.find()
    if driver:
        base, ours, theirs = map(Path, driver[:3])
        raise click.exceptions.Exit(merge_file(project, base, ours, theirs, driver[3]))
    results, is_undecided, has_failed = finish_merge(project), False, False
    for name, result in results:
        label = display_path(project.generated / name)
        if isinstance(result, LoomError):
            complain(result)
            has_failed = True
            continue
        for line in describe_conflicts(result.conflicts, label):
            click.echo(line)
            is_undecided = True
        for path in result.edited:
            click.echo(f"edited   {label}/{path}: the edit is kept; gen pull {name}")
    for place in find_unresolved(project):
        click.echo(f"conflict {place}: in a package that people own")
        is_undecided = True
    woven = sum(not isinstance(result, LoomError) for _, result in results)
    click.echo(f"{woven} package{'' if woven == 1 else 's'} woven from the merged fragments")
    if is_undecided or has_failed:
        raise click.exceptions.Exit(2 if has_failed else 1)


def merge_file(project: Project, base: Path, ours: Path, theirs: Path, path: str) -> int:
    """Merges one generated file as git's merge driver, and writes the result to `ours`.

    Args:
        path: of the file in the repository.

    Returns:
        The exit code; 1 leaves the file unmerged.
    """
    place = find_repository_root(project.root) / path
    if not place.is_relative_to(project.generated):
        raise LoomError("is not in the folder of the packages", path, "Name only that folder in .gitattributes.")
    name, *inner = place.relative_to(project.generated).parts
    if name not in [combination.name for combination in project.listing.owned]:
        return 1
    if "/".join(inner) in RECORDS:
        return 0
    texts = [file.read_bytes().decode() for file in (ours, base, theirs)]
    merged = merge_texts(texts[0], texts[1], texts[2], ("ours", "base", "theirs"))
    ours.write_bytes(merged.text.encode())
    return int(merged.conflicts > 0)


class MergeSide(NamedTuple):
    """The packages of one side of a merge: name -> path -> bytes."""

    revision: str
    packages: dict[str, dict[str, bytes]]

    def outputs(self, name: str) -> dict[str, str]:
        """Returns the digests of the files of a package in its lock there; empty without a lock."""
        try:
            outputs = parse_lock(self.packages[name][LOCK].decode()).outputs
        except (KeyError, ValueError, RecursionError):
            return {}
        return {path: digest for path, digest in outputs.items() if path != MAP}

    def edited_files(self, name: str) -> Texts:
        """Returns the files of a package that are edited there."""
        files = self.packages.get(name, {})
        return {
            path: files[path].decode() if path in files else None
            for path, digest in self.outputs(name).items()
            if sha256(files.get(path, b"")) != digest
        }


class MergeResult(NamedTuple):
    """A package after a merge.

    Attributes:
        edited: files with edits.
        files: all files.
        gone: files of one of the sides that no longer exist.
    """

    edited: list[str]
    conflicts: list[Conflict]
    files: list[str]
    gone: list[str]


def finish_merge(project: Project) -> list[tuple[str, MergeResult | LoomError]]:
    """Weaves every package from the merged fragments, and marks their files as merged in git.

    Returns:
        For each package that people do not own its name, and the package after the merge.
    """
    top = find_repository_root(project.root)
    heads = [word for word in HEADS if run_git(top, "rev-parse", "-q", "--verify", word, code=None)]
    if not heads:
        remedy = "Run it after git merge has stopped; gen build --all weaves at any time."
        raise LoomError("no merge is going on", display_path(top), remedy)
    _check_removed(project)
    _check_sources(project)
    sides = [MergeSide(revision, read_packages_at(project.generated, revision)[1]) for revision in ("HEAD", heads[0])]
    unmerged = _list_unmerged(project)
    changed = {*list_diff(project.generated)}
    for combination in project.listing.owned:
        _merge_owned(project, combination, sides, unmerged)
    results = []
    for name, result in map_packages(finish_package, project, sides, changed - unmerged):
        if isinstance(result, MergeResult):
            _stage_result(project, name, result)
        if result is not None:
            results.append((name, result))
    update_uncommitted_records(project)
    if paths := {LOCKS, IGNORE} & {*os.listdir(project.generated), *unmerged}:
        run_git(project.generated, "add", "--all", "--", *sorted(paths))
    return results


def finish_package(builder: PackageBuilder, sides: list[MergeSide], changed: set[str]) -> MergeResult | None:
    """Weaves a package, and merges the edits of both sides into it; returns None if people own it."""
    if builder.is_owned:
        return None
    if builder.combination in builder.project.listing.uncommitted:
        return _finish_uncommitted(builder, sides)
    folder, files, name = builder.folder, builder.weave_files(), builder.combination.name
    for path in sorted(files):
        if f"{name}/{path}" in changed and (folder / path).read_bytes() != files[path]:
            label = f"{display_path(folder)}/{path}"
            raise LoomError("was edited since the merge began", label, "Stash or commit it.")
    woven = {path: data.decode() for path, data in files.items() if path not in (LOCK, MAP)}
    merged: Texts = dict(woven)
    conflicts: list[Conflict] = []
    for side in sides:
        ours = side.edited_files(name)
        base = {path: _find_woven_text(builder, side, path) for path in ours}
        now = {path: text for path in ours if (text := merged.get(path)) is not None}
        theirs = WovenSide(now, woven, files[MAP].decode(), editor=f"edited in {sides[0].revision}")
        texts, more = merge_files(ours, base, theirs, f"edited in {side.revision}")
        merged |= texts
        conflicts += [conflict for conflict in more if conflict not in conflicts]
    write_package(folder, builder.combination, files, force=True)
    edits = {path: text for path, text in merged.items() if text != woven.get(path)}
    write_texts(folder, edits)
    write_records(folder, files)
    known = {path for side in sides for path in side.outputs(name)}
    gone = sorted(known - files.keys() - edits.keys())
    for path in gone:
        if sha256(read_if_file(folder / path)) in [side.outputs(name).get(path) for side in sides]:
            (folder / path).unlink(missing_ok=True)
    return MergeResult(list(edits), conflicts, sorted(files), gone)


def _finish_uncommitted(builder: PackageBuilder, sides: list[MergeSide]) -> MergeResult:
    """Builds an uncommitted package; files of it that a side has committed stay only on disk."""
    if status := builder.build(allow_lock_only=True):
        status.require_unblocked(builder.combination.command)
    name = builder.combination.name
    return MergeResult([], [], [], sorted({path for side in sides for path in [LOCK, MAP, *side.outputs(name)]}))


def find_unresolved(project: Project) -> list[str]:
    """Finds the files of owned packages that git could not merge, each with its first conflict marker."""
    names = [combination.name for combination in project.listing.owned]
    places = [project.generated / path for path in sorted(_list_unmerged(project)) if path.split("/")[0] in names]
    return [f"{display_path(place)}:{_find_mark_in(place) or 1}" for place in places]


def _list_unmerged(project: Project) -> set[str]:
    return {*list_diff(project.generated, "--diff-filter=U")}


def _find_woven_text(builder: PackageBuilder, side: MergeSide, path: str) -> str:
    """Finds the text that was woven before a side edited a file."""
    digest = side.outputs(builder.combination.name)[path]
    text = find_old_version(builder.folder, path, digest, side.revision)
    if text is None:
        label = display_path(builder.folder / path)
        remedy = f"Merge it by hand: git show {side.revision}:./{label}"
        raise LoomError(f"edited in {side.revision}, and what was woven there is not in git's history", label, remedy)
    return text


def _check_sources(project: Project) -> None:
    """Refuses to weave fragments that have conflict markers."""
    places = [place for root in project.roots for name in FOLDERS for place in sorted((root / name).rglob("*.*"))]
    lines = {place: _find_mark_in(place) for place in [project.generated / PACKAGES, *places]}
    if marked := [f"{display_path(place)}:{line}" for place, line in lines.items() if line]:
        others = f", and so are {', '.join(marked[1:])}" if marked[1:] else ""
        remedy = "Decide what to keep of both sides, then run gen merge again."
        raise LoomError(f"is marked as a conflict{others}", marked[0], remedy)


def _check_removed(project: Project) -> None:
    """Refuses to weave while git asks whether a source that one side removed and the other changed is to stay."""
    for root in project.roots:
        stages: dict[str, set[str]] = {}
        for entry in list_paths(root, "ls-files", "--unmerged", "--", *FOLDERS, "gen.toml", code=None):
            about, _, path = entry.partition("\t")
            stages.setdefault(path, set()).add(about[-1])
        for path, found in stages.items():
            if not {"2", "3"} <= found:
                label = display_path(root / path)
                remedy = f"Decide: git add {label} keeps it, git rm {label} removes it. Then run gen merge again."
                raise LoomError("was removed on one side and changed on the other", label, remedy)


def _find_mark_in(place: Path) -> int:
    return find_conflict_mark(read_if_file(place).decode(errors="replace"))


def _merge_owned(project: Project, combination: Combination, sides: list[MergeSide], unmerged: set[str]) -> None:
    """Merges the files of a package that people own, of which git left our side, and takes the owner's records.

    git's driver leaves our side of a package that is not owned yet. The records are those of the side that owns it, and
    ours if both do; gen update renews them.
    """
    owner = next((side for side in sides if BASE in side.packages.get(combination.name, {})), sides[0])
    for path in sorted(path for path in unmerged if path.split("/")[0] == combination.name):
        place, inner = project.generated / path, path.partition("/")[2]
        versions = [run_git(project.generated, "show", f":{stage}:./{path}", code=None) for stage in (2, 1, 3)]
        if inner in RECORDS:
            place.write_bytes(owner.packages[combination.name].get(inner, versions[0]))
        elif read_if_file(place) == versions[0] and all(versions):
            ours, base, theirs = (version.decode() for version in versions)
            merged = merge_texts(ours, base, theirs, ("ours", "base", "theirs"))
            place.write_bytes(merged.text.encode())
            if merged.conflicts:
                continue
        else:
            continue
        run_git(project.generated, "add", "--", path)


def _stage_result(project: Project, name: str, result: MergeResult) -> None:
    conflicting = {conflict.path for conflict in result.conflicts}
    paths = [f"{name}/{path}" for path in result.files if path not in conflicting]
    run_git(project.generated, "add", "--", *(path for path in paths if kind_of(project.generated / path)))
    if gone := [f"{name}/{path}" for path in result.gone]:
        run_git(project.generated, "rm", "-q", "--cached", "--ignore-unmatch", "--", *gone)
