"""What git passes over in the folder of the packages: all of a package that is not committed, but its lock.

`.gitignore` there says so, in lines of gen's own; lines of other people's stay.
"""

from __future__ import annotations

import re

from generator.disk.lock import LOCK
from generator.disk.look import kind_of, read_text
from generator.disk.project import Project
from generator.disk.write import replace_file

IGNORE = ".gitignore"
_OWN = re.compile(rf"/\w+/\*|!/\w+/{re.escape(LOCK)}")


def ignored_now(project: Project) -> list[str]:
    """The lines of the file."""
    path = project.generated / IGNORE
    return read_text(path).splitlines() if kind_of(path) else []


def ignored_wanted(project: Project) -> list[str]:
    """The lines that it should have."""
    others = [line for line in ignored_now(project) if not _OWN.fullmatch(line)]
    names = [combination.name for combination in project.uncommitted()]
    return others + [line for name in names for line in (f"/{name}/*", f"!/{name}/{LOCK}")]


def write_ignored(project: Project) -> None:
    """Makes the file what it should be; one without a line goes."""
    if (wanted := ignored_wanted(project)) == ignored_now(project):
        return
    if wanted:
        replace_file(project.generated, IGNORE, "".join(f"{line}\n" for line in wanted).encode())
    else:
        (project.generated / IGNORE).unlink(missing_ok=True)


def is_own_ignored(project: Project) -> bool:
    """Whether the file has lines of gen's own and no others."""
    return all(map(_OWN.fullmatch, ignored_now(project)))
