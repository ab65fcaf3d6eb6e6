"""Merges what the fragments bring into a package that was edited."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from generator.commands.console import AS_JSON, exit_codes, write_json
from generator.commands.own import find_kept
from generator.commands.packages import PackageBuilder
from generator.disk.built import BASE, base_texts, dump_base
from generator.disk.files import display_path, kind_of, read_plain_file
from generator.disk.git import MARKS, has_marks, last_commit, merge_texts
from generator.disk.lock import LOCK, MAP, Fingerprints
from generator.disk.project import Project
from generator.disk.write import replace_file, write_records
from generator.errors import LoomError

if TYPE_CHECKING:
    from generator.code.traced import Origin


@click.command("update", **exit_codes("1 there are conflicts"))
@click.argument("package", metavar="PACKAGE")
@AS_JSON
def command(package: str, as_json: bool) -> None:
    """Merge what the fragments bring into a package that people own, or that was edited.

    The merge has three sides: the package, what was woven when it was last built or updated, and what is woven now.
    Conflicts are left as git leaves them, each with the fragment and the commit that made the other side.
    """
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


class Conflict(NamedTuple):
    """A place that was changed on both sides.

    Attributes:
        line: in the merged file, from 1; 0 for a whole file.
        sources: the fragment lines, or the template, that made the other side.
        reason: what is to be decided.
        commits: that changed these lines last.
    """

    path: str
    line: int
    sources: tuple[str, ...]
    reason: str
    commits: tuple[str, ...] = ()


class UpdateResult(NamedTuple):
    """The result of an update."""

    shown: str
    changed: list[str]
    conflicts: list[Conflict]
    tests: str


class WovenSide(NamedTuple):
    """The side of a merge that gen wove.

    Attributes:
        files: path -> text.
        woven: the same before someone edited them.
        mapping: the `gen.map` of what was woven.
        roots: of the sources, of which git is asked for commits; none: it is not.
        editor: who edited the files, for the marks of conflicts.
    """

    files: dict[str, str]
    woven: dict[str, str]
    mapping: str
    roots: tuple[Path, ...] = ()
    editor: str = ""


def update(project: Project, word: str) -> UpdateResult:
    """Merges into a package, owned or only edited, what is woven now; the base is what was woven then."""
    built = find_kept(project, word)
    made = PackageBuilder(project, built.lock.combination, Fingerprints(project.roots), project.generated).woven()
    new = {path: data.decode() for path, data in made.items() if path not in (LOCK, MAP)}
    base = base_texts(built.folder, built.lock, lambda: new)
    now: dict[str, str | None] = {}
    for path in sorted(base.keys() | new.keys()):
        now[path] = read_plain_file(built.folder / path) if kind_of(built.folder / path) else None
        if line := has_marks(now[path] or ""):
            remedy = "Decide it, take the marks out, then update."
            raise LoomError("a conflict was left here", f"{built.shown}/{path}:{line}", remedy)
    theirs = WovenSide(new, new, made[MAP].decode(), project.roots)
    merged, conflicts = merge_files(now, base, theirs, built.name)
    changed = [path for path in merged if merged[path] != now.get(path)]
    for path in changed:
        write_text(built.folder, path, merged[path])
    owned = built.lock.combination in project.by_hand()
    if owned and dump_base(made) != dump_base({path: text.encode() for path, text in base.items()}):
        replace_file(built.folder, BASE, dump_base(made))
    write_records(built.folder, made)
    has_tests = any(path.startswith("tests/") for path in new)
    tests = f"cd {display_path(project.generated)} && python -m pytest {built.name}" if has_tests else ""
    return UpdateResult(built.shown, changed, conflicts, tests)


def merge_files(
    ours: dict[str, str | None], base: dict[str, str], theirs: WovenSide, name: str
) -> tuple[dict[str, str | None], list[Conflict]]:
    """Merges the files of a package three-way; a file that is to be gone becomes None.

    Args:
        ours: as they are now.
        base: as they were woven then.
        name: of our side, for marks.
    """
    merged: dict[str, str | None] = {}
    conflicts = []
    for path in sorted(base.keys() | theirs.files.keys()):
        old, mine, new = base.get(path), ours.get(path), theirs.files.get(path)
        windows = _ends_in_crlf(mine) and not _ends_in_crlf(old)
        mine = mine.replace("\r\n", "\n") if mine and windows else mine
        if mine in (old, new):
            merged[path] = new
        elif new == old:
            merged[path] = mine
        elif mine is None or new is None:
            merged[path] = mine if new is None else new
            reason = "edited here, and the fragments make it no more" if new is None else "removed here, and changed"
            conflicts.append(Conflict(path, 0, (), reason))
        else:
            done = merge_texts(mine, old or "", new, (name, "woven then", "fragments"))
            merged[path] = done.text
            if done.conflicts:
                merged[path], found = _name_sources(path, done.text, theirs)
                conflicts += found
        if windows and (text := merged[path]):
            merged[path] = text.replace("\n", "\r\n")
    return merged, conflicts


def _ends_in_crlf(text: str | None) -> bool:
    """Tells whether all lines end as an editor on Windows ends them."""
    return text is not None and text.count("\n") == text.count("\r\n") > 0


def _name_sources(path: str, text: str, theirs: WovenSide) -> tuple[str, list[Conflict]]:
    """Writes the fragments and their commits at the end of each conflict."""
    from generator.code.sourcemap import parse_map

    origins, lines, conflicts = parse_map(theirs.mapping).get(path, []), text.split("\n"), []
    woven = theirs.woven.get(path, theirs.files[path]).split("\n")
    for start, end, rows in _find_conflicts(lines, woven):
        found = dict.fromkeys(origin for row in rows if row < len(origins) for _, origin in origins[row])
        commits = _find_commits(found, theirs.roots)
        named = [f"{source} ({commit})" if commit else source for source, commit in commits.items()]
        sources, known = tuple(map(str, found)), tuple(dict.fromkeys(filter(None, commits.values())))
        if not rows and theirs.editor:  # no fragment made these lines
            named, sources = [theirs.editor], (theirs.editor,)
        lines[end] = f"{MARKS[2]}{', '.join(named) or 'templates'}"
        conflicts.append(Conflict(path, start + 1, sources, "changed on both sides", known))
    return "\n".join(lines), conflicts


def _find_conflicts(lines: list[str], woven: list[str]) -> Iterator[tuple[int, int, list[int]]]:
    """Finds the conflicts in a merged file: the first and the last line of each, and the woven rows of their side."""
    found: list[tuple[int, int, range]] = []
    resolved: list[str] = []  # with their side of each conflict
    state, start, first = "", 0, 0
    for number, line in enumerate(lines):
        if line.startswith(MARKS[0]):
            state, start = "ours", number
        elif line == "=======" and state == "ours":
            state, first = "theirs", len(resolved)
        elif line.startswith(MARKS[2]) and state == "theirs":
            found.append((start, number, range(first, len(resolved))))
            state = ""
        elif state != "ours":
            resolved.append(line)
    matches = SequenceMatcher(None, resolved, woven, autojunk=False).get_matching_blocks()
    rows = {a + n: b + n for a, b, size in matches for n in range(size)}
    for start, end, part in found:
        part = part or range(part.start - 1, part.start + 1)  # lines that they deleted: those around
        yield start, end, [rows[row] for row in part if row in rows]


def _find_commits(origins: Iterable[Origin], roots: tuple[Path, ...]) -> dict[str, str]:
    """Finds the commit that changed these lines of each source last, '' where git knows none."""
    lines: dict[str, list[int]] = {}
    for origin in origins:
        lines.setdefault(origin.path, []).append(origin.line)
    places = {path: next((root for root in roots if (root / path).is_file()), None) for path in lines}
    return {
        path: last_commit(root, path, min(lines[path]), max(lines[path])) if root else ""
        for path, root in places.items()
    }


def write_text(folder: Path, path: str, text: str | None) -> None:
    """Writes a file of a package, or removes it."""
    if text is None:
        (folder / path).unlink(missing_ok=True)
        return
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    replace_file(folder, path, text.encode())


def describe(conflicts: Collection[Conflict], shown: str) -> list[str]:
    """Gives the lines that a person reads of conflicts."""
    lines = []
    for one in conflicts:
        place = f"{shown}/{one.path}:{one.line}" if one.line else f"{shown}/{one.path}"
        causes = [*one.sources[:6], *(f"last changed by {commit}" for commit in one.commits)]
        lines.append(f"conflict {place}: {one.reason}" + "".join(f"\n         {cause}" for cause in causes))
    return lines
