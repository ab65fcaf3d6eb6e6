"""Merges the files of a package three-way, and names the fragments and commits behind each conflict."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from generator.disk.git import MARKS, find_last_commit, merge_texts
from generator.disk.write import replace_file

if TYPE_CHECKING:
    from generator.code.traced import Origin

Texts = dict[str, str | None]  # path in the package -> text, None for a file that does not exist


class Conflict(NamedTuple):
    """A place that both sides changed.

    Attributes:
        line: in the merged file, from 1; 0 for a whole file.
        sources: the fragment lines, or the template, that made the other side.
        reason: states what both sides did.
        commits: changed these lines last.
    """

    path: str
    line: int
    sources: tuple[str, ...]
    reason: str
    commits: tuple[str, ...] = ()


class WovenSide(NamedTuple):
    """The side of a merge that gen wove.

    Attributes:
        files: path -> text.
        woven: path -> text before anybody edited the files.
        mapping: the `gen.map` of the woven files.
        roots: of the sources, whose commits conflicts name; empty to name none.
        editor: labels the other editor of the files in conflict markers.
    """

    files: dict[str, str]
    woven: dict[str, str]
    mapping: str
    roots: tuple[Path, ...] = ()
    editor: str = ""


def merge_files(ours: Texts, base: dict[str, str], theirs: WovenSide, name: str) -> tuple[Texts, list[Conflict]]:
    """Merges the files of a package three-way.

    Args:
        ours: the edited files.
        base: the files as of the last build.
        name: labels our side in conflict markers.
    """
    merged: Texts = {}
    conflicts = []
    for path in sorted(base.keys() | theirs.files.keys()):
        old, mine, new = base.get(path), ours.get(path), theirs.files.get(path)
        is_crlf = _ends_in_crlf(mine) and not _ends_in_crlf(old)
        mine = mine.replace("\r\n", "\n") if mine and is_crlf else mine
        text = new if mine in (old, new) else mine
        if mine not in (old, new) and new != old:
            if mine is None or new is None:
                gone, kept = (
                    "removed here, and changed by the fragments",
                    "edited here, and no fragment makes it any more",
                )
                text, reason = (new, gone) if mine is None else (mine, kept)
                conflicts.append(Conflict(path, 0, (), reason))
            else:
                text, count = merge_texts(mine, old or "", new, (name, "woven then", "fragments"))
                if count:
                    text, more = _name_sources(path, text, theirs)
                    conflicts += more
        merged[path] = text.replace("\n", "\r\n") if is_crlf and text else text
    return merged, conflicts


def _ends_in_crlf(text: str | None) -> bool:
    """Returns whether all lines have the ends of Windows."""
    return text is not None and text.count("\n") == text.count("\r\n") > 0


def _name_sources(path: str, text: str, theirs: WovenSide) -> tuple[str, list[Conflict]]:
    """Writes the fragments and their commits into the end marker of each conflict."""
    from generator.code.sourcemap import parse_map

    origins, lines, conflicts = parse_map(theirs.mapping).get(path, []), text.split("\n"), []
    woven = theirs.woven.get(path, theirs.files[path]).split("\n")
    for start, end, rows in _find_conflicts(lines, woven):
        used = dict.fromkeys(origin for row in rows if row < len(origins) for _, origin in origins[row])
        commits = _find_commits(used, theirs.roots)
        names = [f"{source} ({commit})" if commit else source for source, commit in commits.items()]
        sources, known = tuple(map(str, used)), tuple(dict.fromkeys(filter(None, commits.values())))
        if not rows and theirs.editor:  # no fragment made these lines
            names, sources = [theirs.editor], (theirs.editor,)
        lines[end] = f"{MARKS[2]}{', '.join(names) or 'templates'}"
        conflicts.append(Conflict(path, start + 1, sources, "changed on both sides", known))
    return "\n".join(lines), conflicts


def _find_conflicts(lines: list[str], woven: list[str]) -> Iterator[tuple[int, int, list[int]]]:
    """Finds the conflicts in a merged file: the first and last line of each, and the woven rows of their side."""
    spans: list[tuple[int, int, range]] = []
    resolved: list[str] = []  # the file with their side of each conflict
    state, start, first = "", 0, 0
    for number, line in enumerate(lines):
        if line.startswith(MARKS[0]):
            state, start = "ours", number
        elif line == "=======" and state == "ours":
            state, first = "theirs", len(resolved)
        elif line.startswith(MARKS[2]) and state == "theirs":
            spans.append((start, number, range(first, len(resolved))))
            state = ""
        elif state != "ours":
            resolved.append(line)
    matches = SequenceMatcher(None, resolved, woven, autojunk=False).get_matching_blocks()
    rows = {a + n: b + n for a, b, size in matches for n in range(size)}
    for start, end, part in spans:
        part = part or range(part.start - 1, part.start + 1)  # for lines that they deleted, the lines around
        yield start, end, [rows[row] for row in part if row in rows]


def _find_commits(origins: Iterable[Origin], roots: tuple[Path, ...]) -> dict[str, str]:
    """Finds the last commit that changed these lines of each source; "" if git does not track it."""
    lines: dict[str, list[int]] = {}
    for origin in origins:
        lines.setdefault(origin.path, []).append(origin.line)
    places = {path: next((root for root in roots if (root / path).is_file()), None) for path in lines}
    return {
        path: find_last_commit(root, path, min(lines[path]), max(lines[path])) if root else ""
        for path, root in places.items()
    }


def write_texts(folder: Path, texts: Texts) -> None:
    """Writes files of a package; removes those that are None."""
    for path, text in texts.items():
        if text is None:
            (folder / path).unlink(missing_ok=True)
        else:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            replace_file(folder, path, text.encode())


def describe_conflicts(conflicts: Collection[Conflict], label: str) -> list[str]:
    """Returns the lines that report conflicts to people."""
    lines = []
    for conflict in conflicts:
        place = f"{label}/{conflict.path}" + (f":{conflict.line}" if conflict.line else "")
        causes = [*conflict.sources[:6], *(f"last changed by {commit}" for commit in conflict.commits)]
        lines.append(f"conflict {place}: {conflict.reason}" + "".join(f"\n         {cause}" for cause in causes))
    return lines
