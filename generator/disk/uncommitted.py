"""What git has of packages that are not committed: their locks in one file, and the lines of .gitignore.

One file, so that a change of a fragment that all of them hold changes no file for each. Both are kept by `gen build`;
lines of .gitignore that are other people's stay.
"""

from __future__ import annotations

import re
from contextlib import suppress

from generator.disk.lock import LOCKS, join_locks, read_locks
from generator.disk.look import kind_of, read_text
from generator.disk.project import Project
from generator.disk.write import alone, replace_file
from generator.errors import LoomError

IGNORE = ".gitignore"
_OWN = re.compile(r"/\w+/")


def ignored_now(project: Project) -> list[str]:
    """The lines of the file."""
    path = project.generated / IGNORE
    return read_text(path).splitlines() if kind_of(path) else []


def ignored_wanted(project: Project) -> list[str]:
    """The lines that it should have."""
    others = [line for line in ignored_now(project) if not _OWN.fullmatch(line)]
    return others + [f"/{combination.name}/" for combination in project.uncommitted()]


def is_own_ignored(project: Project) -> bool:
    """Whether the file has lines of gen's own and no others."""
    return all(map(_OWN.fullmatch, ignored_now(project)))


def write_lock(project: Project, name: str, text: str) -> None:
    """Writes the lock of one package beside those of the others; what is broken begins anew."""
    project.generated.mkdir(parents=True, exist_ok=True)
    with alone(project.generated):
        locks = dict[str, str]()
        with suppress(LoomError):
            locks = read_locks(project.generated)
        if locks.get(name) != text:
            replace_file(project.generated, LOCKS, join_locks(locks | {name: text}).encode())


def write_uncommitted(project: Project) -> None:
    """Takes the locks of packages that are committed out, and has git ignore the others; a file without a line goes."""
    names = {combination.name for combination in project.uncommitted()}
    with suppress(LoomError):
        locks = read_locks(project.generated)
        left = {name: text for name, text in locks.items() if name in names}
        if left and left != locks:
            replace_file(project.generated, LOCKS, join_locks(left).encode())
        elif not left:
            (project.generated / LOCKS).unlink(missing_ok=True)
    if (wanted := ignored_wanted(project)) == ignored_now(project):
        return
    if wanted:
        replace_file(project.generated, IGNORE, "".join(f"{line}\n" for line in wanted).encode())
    else:
        (project.generated / IGNORE).unlink(missing_ok=True)
