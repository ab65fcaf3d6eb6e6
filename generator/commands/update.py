"""Merges what the fragments bring into a package that was edited."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from generator.commands.own import kept
from generator.commands.packages import Asked
from generator.disk.built import BASE, base_texts, dump_base
from generator.disk.git import MARKS, has_marks, last_commit, merge_texts
from generator.disk.lock import LOCK, MAP, Fingerprints
from generator.disk.look import kind_of, read_text, show
from generator.disk.project import Project
from generator.disk.write import replace_file, write_records
from generator.errors import LoomError

if TYPE_CHECKING:
    from generator.code.traced import Origin


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


class Updated(NamedTuple):
    """What an update did."""

    shown: str
    changed: list[str]
    conflicts: list[Conflict]
    tests: str


def update(project: Project, word: str) -> Updated:
    """Merges into a package, owned or only edited, what is woven now; the base is what was woven then."""
    built = kept(project, word)
    asked = Asked(project, built.lock.combination, Fingerprints(project.roots), project.generated)
    made = asked.woven()
    new = {path: data.decode() for path, data in made.items() if path not in (LOCK, MAP)}
    base = base_texts(built.folder, built.lock, lambda: new)
    now: dict[str, str | None] = {}
    for path in sorted(base.keys() | new.keys()):
        now[path] = read_text(built.folder / path) if kind_of(built.folder / path) else None
        if line := has_marks(now[path] or ""):
            remedy = "Decide it, take the marks out, then update."
            raise LoomError("a conflict was left here", f"{built.shown}/{path}:{line}", remedy)
    merged, conflicts = merge_files(now, base, new, made[MAP].decode(), built.name, project.roots)
    changed = [path for path in merged if merged[path] != now.get(path)]
    for path in changed:
        write_text(built.folder, path, merged[path])
    owned = built.lock.combination in project.by_hand()
    if owned and dump_base(made) != dump_base({path: text.encode() for path, text in base.items()}):
        replace_file(built.folder, BASE, dump_base(made))
    write_records(built.folder, made)
    has_tests = any(path.startswith("tests/") for path in new)
    tests = f"cd {show(project.generated)} && python -m pytest {built.name}" if has_tests else ""
    return Updated(built.shown, changed, conflicts, tests)


def merge_files(
    ours: dict[str, str | None],
    base: dict[str, str],
    theirs: dict[str, str],
    mapping: str,
    name: str,
    roots: tuple[Path, ...] = (),
    edits: tuple[str, dict[str, str]] = ("", {}),
) -> tuple[dict[str, str | None], list[Conflict]]:
    """The files of a package, merged three-way; None for a file that is to be gone.

    Args:
        ours: as they are now.
        base: as they were woven then.
        theirs: as they are woven now.
        mapping: their `gen.map`.
        name: of the package, for marks.
        roots: of the sources, of which git is asked for the commits behind conflicts; none: it is not.
        edits: where someone has edited `theirs`: who, for marks, and the files as they were woven.
    """
    merged: dict[str, str | None] = {}
    conflicts = []
    for path in sorted(base.keys() | theirs.keys()):
        old, mine, new = base.get(path), ours.get(path), theirs.get(path)
        windows = _windows(mine) and not _windows(old)
        mine = mine.replace("\r\n", "\n") if mine and windows else mine
        if mine == old or mine == new:
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
                woven = edits[1].get(path, new)
                merged[path], found = _named(path, done.text, woven, mapping, roots, edits[0])
                conflicts += found
        if windows and (text := merged[path]):
            merged[path] = text.replace("\n", "\r\n")
    return merged, conflicts


def _windows(text: str | None) -> bool:
    """Whether all lines end as an editor on Windows ends them."""
    return text is not None and text.count("\n") == text.count("\r\n") > 0


def _named(
    path: str, text: str, new: str, mapping: str, roots: tuple[Path, ...], editor: str
) -> tuple[str, list[Conflict]]:
    """The text with the fragments and their commits named at the end of each conflict, and the conflicts."""
    from generator.code.sourcemap import load

    origins, woven = load(mapping).get(path, []), new.split("\n")
    lines, conflicts, start, middle, reached = text.split("\n"), [], 0, 0, 0
    for number, line in enumerate(lines):
        if line.startswith(MARKS[0]):
            start = number
        elif line == "=======":
            middle = number
        elif line.startswith(MARKS[2]) and start < middle:
            theirs = lines[middle + 1 : number]
            place = _find(woven, theirs, lines[:start], lines[number + 1 :], reached)
            if place is None and editor:  # no fragment made these lines
                lines[number] = f"{MARKS[2]}{editor}"
                conflicts.append(Conflict(path, start + 1, (editor,), "changed on both sides"))
                continue
            reached = reached if place is None else place
            rows = range(max(reached - (not theirs), 0), reached + max(len(theirs), 1))
            found = dict.fromkeys(origin for row in rows if row < len(origins) for _, origin in origins[row])
            sources = tuple(str(origin) for origin in found)
            commits = _commits(found, roots)
            named = [f"{path} ({commit})" if commit else path for path, commit in commits.items()]
            lines[number] = f"{MARKS[2]}{', '.join(named) or 'templates'}"
            known = tuple(dict.fromkeys(filter(None, commits.values())))
            conflicts.append(Conflict(path, start + 1, sources, "changed on both sides", known))
    return "\n".join(lines), conflicts


def _commits(origins: Collection[Origin], roots: tuple[Path, ...]) -> dict[str, str]:
    """Source -> the commit that changed these of its lines last, where git knows it."""
    rows: dict[str, list[int]] = {}
    for origin in origins:
        rows.setdefault(origin.path, []).append(origin.line)
    commits = dict.fromkeys(rows, "")
    for path, lines in rows.items():
        for root in roots:
            if (root / path).is_file():
                commits[path] = last_commit(root, path, min(lines), max(lines))
    return commits


def _find(woven: list[str], part: list[str], above: list[str], below: list[str], start: int) -> int | None:
    """Where lines stand in a woven file, from a row on, if they do; deleted ones by what stands above and below."""
    tries = [(part, 0)] if part else [(above[-count:], count) for count in (3, 2, 1)]
    tries += [] if part else [(below[:count], 0) for count in (3, 2, 1)]
    for lines, before in tries:
        for row in range(max(start - before, 0), len(woven) - len(lines) + 1):
            if lines and woven[row : row + len(lines)] == lines:
                return row + before
    return None


def write_text(folder: Path, path: str, text: str | None) -> None:
    """Writes a file of a package, or removes it."""
    if text is None:
        with suppress(FileNotFoundError):
            (folder / path).unlink()
        return
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    replace_file(folder, path, text.encode())


def told(conflicts: Collection[Conflict], shown: str) -> list[str]:
    """The conflicts in words."""
    lines = []
    for one in conflicts:
        place = f"{shown}/{one.path}:{one.line}" if one.line else f"{shown}/{one.path}"
        told = [*one.sources[:6], *(f"last changed by {commit}" for commit in one.commits)]
        lines.append(f"conflict {place}: {one.reason}" + "".join(f"\n         {each}" for each in told))
    return lines
