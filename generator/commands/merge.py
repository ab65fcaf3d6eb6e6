"""Merges in git: packages are woven from the merged fragments, not put together from lines.

While git merges, a driver keeps our side of each generated file that both sides changed and leaves it unmerged: the
fragments may not be merged yet. `gen merge` then weaves, and lays what people edited on either side on top.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import click

from generator.commands.console import complain, exit_codes
from generator.commands.packages import PackageBuilder, each_package
from generator.commands.update import Conflict, WovenSide, describe, merge_files, write_text
from generator.disk.built import BASE
from generator.disk.files import display_path, kind_of, sha256
from generator.disk.git import git, has_marks, merge_texts, older_file, packages_at, top_of
from generator.disk.lock import LOCK, LOCKS, MAP, Combination, parse_lock
from generator.disk.project import PACKAGES, Project
from generator.disk.write import IGNORE, write_package, write_records, write_uncommitted
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
        raise click.exceptions.Exit(drive(project, base, ours, theirs, driver[3]))
    results, left, failed = finish(project), False, False
    for name, found in results:
        if isinstance(found, LoomError):
            complain(found)
            failed = True
            continue
        for line in describe(found.conflicts, project.display_path(project.generated / name)):
            click.echo(line)
        left = left or bool(found.conflicts)
        for path in found.edited:
            click.echo(
                f"edited   {project.display_path(project.generated / name)}/{path}: the edit is kept; gen pull {name}"
            )
    for place in left_to_decide(project):
        click.echo(f"conflict {place}: in a package that people own")
        left = True
    woven = sum(not isinstance(found, LoomError) for _, found in results)
    click.echo(f"{woven} package{'' if woven == 1 else 's'} woven from the merged fragments")
    if left or failed:
        raise click.exceptions.Exit(2 if failed else 1)


def drive(project: Project, base: Path, ours: Path, theirs: Path, path: str) -> int:
    """Merges one generated file for git, which then has its result in `ours`.

    Args:
        path: of the file in the repository.

    Returns:
        The exit code: 1 leaves it unmerged.
    """
    place = top_of(project.root) / path
    if not place.is_relative_to(project.generated):
        raise LoomError("is not in the folder of the packages", path, "Name only that folder in .gitattributes.")
    inside = place.relative_to(project.generated)
    if inside.parts[0] not in [combination.name for combination in project.by_hand()]:
        return 1
    if inside.as_posix() in [f"{inside.parts[0]}/{name}" for name in RECORDS]:
        return 0
    texts = [file.read_bytes().decode() for file in (ours, base, theirs)]
    merged = merge_texts(texts[0], texts[1], texts[2], ("ours", "base", "theirs"))
    ours.write_bytes(merged.text.encode())
    return int(merged.conflicts > 0)


class MergeSide(NamedTuple):
    """The packages as one side of a merge has them: name -> path -> bytes."""

    revision: str
    packages: dict[str, dict[str, bytes]]

    def outputs(self, name: str) -> dict[str, str]:
        """The files of a package that gen had woven there, with their hashes; none without a lock."""
        try:
            outputs = parse_lock(self.packages[name][LOCK].decode()).outputs
        except (KeyError, ValueError, RecursionError):
            return {}
        return {path: digest for path, digest in outputs.items() if path != MAP}

    def edited(self, name: str) -> list[str]:
        """The files of a package that someone edited there."""
        files = self.packages.get(name, {})
        return [path for path, digest in self.outputs(name).items() if sha256(files.get(path, b"")) != digest]

    def text(self, name: str, path: str) -> str | None:
        data = self.packages.get(name, {}).get(path)
        return None if data is None else data.decode()


class MergeResult(NamedTuple):
    """A package after a merge.

    Attributes:
        edited: its files that hold edits.
        files: all of them.
        gone: files of a side that it has no more.
    """

    edited: list[str]
    conflicts: list[Conflict]
    files: list[str]
    gone: list[str]


def finish(project: Project) -> list[tuple[str, MergeResult | LoomError]]:
    """Weaves every package from the merged fragments, and tells git that their files are merged.

    Returns:
        For each package that is not owned its name, and the package after the merge.
    """
    top = top_of(project.root)
    others = [word for word in HEADS if git(top, "rev-parse", "-q", "--verify", word, code=None)]
    if not others:
        remedy = "Run it after git merge has stopped; gen build --all weaves at any time."
        raise LoomError("no merge is going on", display_path(top), remedy)
    _check_sources(project)
    sides = [MergeSide(revision, packages_at(project.generated, revision)[1]) for revision in ("HEAD", others[0])]
    unmerged = _unmerged(project)
    changed = set(git(project.generated, "diff", "--name-only", "-z", "--relative").decode().split("\0"))
    for combination in project.by_hand():
        _keep_records(project, combination, sides[0], unmerged)
    result = []
    for name, found in each_package(finish_package, project, sides, changed - unmerged):
        if isinstance(found, MergeResult):
            _tell_git(project, name, found)
        if found is not None:
            result.append((name, found))
    write_uncommitted(project)
    if paths := {LOCKS, IGNORE} & {*os.listdir(project.generated), *unmerged}:
        git(project.generated, "add", "--all", "--", *sorted(paths))
    return result


def finish_package(builder: PackageBuilder, sides: list[MergeSide], changed: set[str]) -> MergeResult | None:
    """Weaves a package and lays what was edited on either side on top; None for one that people own."""
    if builder.by_hand:
        return None
    if builder.combination in builder.project.uncommitted():
        return _finish_uncommitted(builder, sides)
    made, name = builder.woven(), builder.combination.name
    for path in sorted(changed):
        inside = path.removeprefix(f"{name}/")
        if inside in made and inside != path and (builder.folder / inside).read_bytes() != made[inside]:
            raise LoomError(
                "was edited since the merge began", f"{display_path(builder.folder)}/{inside}", "Stash or commit it."
            )
    woven = {path: data.decode() for path, data in made.items() if path not in (LOCK, MAP)}
    merged: dict[str, str | None] = dict(woven)
    conflicts: list[Conflict] = []
    editor = f"edited in {sides[0].revision}"
    for side in sides:
        edited = side.edited(name)
        base = {path: _woven_then(builder, side, path) for path in edited}
        now = {path: text for path in edited if (text := merged.get(path)) is not None}
        theirs = WovenSide(now, woven, made[MAP].decode(), editor=editor)
        ours = {path: side.text(name, path) for path in edited}
        done, more = merge_files(ours, base, theirs, f"edited in {side.revision}")
        merged |= done
        conflicts += [one for one in more if one not in conflicts]
    write_package(builder.folder, builder.combination, made, force=True)
    edits = [path for path in merged if merged[path] != woven.get(path)]
    for path in edits:
        write_text(builder.folder, path, merged[path])
    write_records(builder.folder, made)
    known = {path for side in sides for path in side.outputs(name)}
    gone = [path for path in sorted(known - made.keys()) if path not in edits]
    for path in gone:
        if sha256(_bytes(builder.folder / path)) in [side.outputs(name).get(path) for side in sides]:
            write_text(builder.folder, path, None)
    return MergeResult(edits, conflicts, sorted(made), gone)


def _finish_uncommitted(builder: PackageBuilder, sides: list[MergeSide]) -> MergeResult:
    """Builds a package that is not committed; files of it that a side has committed stay on disk alone."""
    found = builder.build(lock_is_enough=True)
    if found and found.blocked:
        first = found.blocked[0]
        remedy = f"Keep your change in a fragment, or give it up: {builder.combination.command} --force"
        raise LoomError(first.reason, f"{found.shown}/{first.path}", remedy)
    name = builder.combination.name
    return MergeResult([], [], [], sorted({path for side in sides for path in [LOCK, MAP, *side.outputs(name)]}))


def left_to_decide(project: Project) -> list[str]:
    """The files of owned packages that git could not merge, each with its first mark."""
    names = [combination.name for combination in project.by_hand()]
    paths = _unmerged(project)
    places = [project.generated / path for path in sorted(paths) if path.split("/")[0] in names]
    return [f"{display_path(place)}:{_line_of_marks(place) or 1}" for place in places]


def _unmerged(project: Project) -> set[str]:
    said = git(project.generated, "diff", "--name-only", "-z", "--relative", "--diff-filter=U").decode()
    return set(filter(None, said.split("\0")))


def _woven_then(builder: PackageBuilder, side: MergeSide, path: str) -> str:
    """Finds what had been woven where a side has an edited file."""
    digest = side.outputs(builder.combination.name)[path]
    text = older_file(builder.folder, path, digest, side.revision)
    if text is None:
        shown = display_path(builder.folder / path)
        remedy = f"Merge it by hand: git show {side.revision}:./{shown}"
        raise LoomError(f"edited in {side.revision}, and what was woven there is not in git's history", shown, remedy)
    return text


def _check_sources(project: Project) -> None:
    """Refuses to weave fragments that are not merged."""
    left = [display_path(place) for place in [project.generated / PACKAGES] if _line_of_marks(place)]
    for root in project.roots:
        for folder in FOLDERS:
            for place in sorted((root / folder).rglob("*.*")):
                if line := _line_of_marks(place):
                    left.append(f"{display_path(place)}:{line}")
    if left:
        remedy = "Decide them, then run gen merge again."
        raise LoomError(f"the fragments themselves conflict: {', '.join(left)}", left[0], remedy)


def _line_of_marks(place: Path) -> int:
    return has_marks(_bytes(place).decode(errors="replace"))


def _bytes(place: Path) -> bytes:
    return place.read_bytes() if kind_of(place) == "file" else b""


def _keep_records(project: Project, combination: Combination, ours: MergeSide, unmerged: set[str]) -> None:
    """Takes our side of the records of a package that people own; gen update renews them."""
    files = ours.packages.get(combination.name, {})
    for name in RECORDS:
        path = f"{combination.name}/{name}"
        if path in unmerged and name in files:
            (project.generated / path).write_bytes(files[name])
            git(project.generated, "add", "--", path)


def _tell_git(project: Project, name: str, found: MergeResult) -> None:
    left = {conflict.path for conflict in found.conflicts}
    paths = [f"{name}/{path}" for path in found.files if path not in left and kind_of(project.generated / name / path)]
    git(project.generated, "add", "--", *paths)
    if gone := [f"{name}/{path}" for path in found.gone]:
        git(project.generated, "rm", "-q", "--cached", "--ignore-unmatch", "--", *gone)
