"""How far a package that people own is from what was woven, and where conflicts were left in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from generator.code.hunks import hunks
from generator.disk.built import kept_base
from generator.disk.git import has_marks, older_file
from generator.disk.lock import LOCK, MAP, Combination, read_lock
from generator.disk.look import kind_of, sha256


def changed_lines(folder: Path, combination: Combination) -> tuple[int, int]:
    """How many lines of how many files of an owned package are not as they were woven."""
    lock = read_lock(folder, combination)
    base = kept_base(folder)
    lines = files = 0
    for path in lock.outputs.keys() - {MAP, LOCK}:
        if kind_of(folder / path) == "file" and sha256((folder / path).read_bytes()) == lock.outputs[path]:
            continue
        woven = base.get(path) or older_file(folder, path, lock.outputs[path])
        old = (woven or "").split("\n")
        new = (
            (folder / path).read_bytes().decode(errors="replace").split("\n")
            if kind_of(folder / path) == "file"
            else [""]
        )
        count = sum(max(len(hunk.before), len(hunk.after)) for hunk in hunks(old, new)) if old != new else 0
        lines, files = lines + count, files + bool(count)
    return lines, files


def conflicts_left(folder: Path, combination: Combination) -> Iterator[tuple[str, int]]:
    """Files of an owned package, each with the first line at which a merge left a conflict."""
    for path in sorted(read_lock(folder, combination).outputs.keys() - {MAP, LOCK}):
        if kind_of(folder / path) == "file":
            text = (folder / path).read_bytes().decode(errors="replace")
            if line := has_marks(text):
                yield path, line
