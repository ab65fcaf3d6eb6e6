"""Knows what a check must look at, by a list or an older revision: a change cannot take packages out of it unseen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from generator.disk.files import display_path, read_plain_file
from generator.disk.git import find_commit, git, split_paths
from generator.disk.lock import LOCK
from generator.disk.project import PACKAGES, SETTINGS, Project, read_listed, read_settings
from generator.errors import LoomError


class Expected(NamedTuple):
    """What was checked.

    Attributes:
        packages: their names, without those that people own.
        own: paths that were named as not gen's.
        generated: the folder that they were in, as gen.toml has it; None where that is not known.
    """

    packages: list[str]
    own: list[str]
    generated: str | None = None


def by_file(path: Path) -> Expected:
    """Reads what a file like packages.toml lists."""
    if not path.exists():
        raise LoomError("is not there", display_path(path), "Name a file such as packages.toml.")
    return _listed(read_plain_file(path), display_path(path))


def by_revision(project: Project, revision: str) -> Expected:
    """Reads what the project lists at a revision of git, or else has a lock of."""
    commit, at = find_commit(project.root, revision), f"{SETTINGS} at {revision}"
    settings = git(project.root, "show", f"{commit}:./{SETTINGS}", code=None).decode(errors="replace")
    generated = read_settings(settings, at).generated
    if Path(generated).is_absolute():
        raise LoomError("generated is no path inside the project", at, "Give --expect FILE.")
    if not git(project.root, "ls-tree", commit, "--", f"{generated}/{PACKAGES}"):
        paths = split_paths(git(project.root, "ls-tree", "-r", "--name-only", "-z", commit, "--", generated))
        locks = [Path(path).relative_to(generated) for path in paths if Path(path).name == LOCK]
        return Expected([path.parts[0] for path in locks if len(path.parts) == 2], [], generated)
    text = git(project.root, "show", f"{commit}:./{generated}/{PACKAGES}").decode(errors="replace")
    return _listed(text, f"{generated}/{PACKAGES} at {revision}", generated)


def _listed(text: str, shown: str, generated: str | None = None) -> Expected:
    listed = read_listed(text, shown)
    return Expected([c.name for c in listed.packages if c not in listed.by_hand], listed.own, generated)


def unchecked(project: Project, expected: Expected) -> Iterator[tuple[str, str, str]]:
    """Package, path and reason of what was checked and is not any more."""
    generated = project.settings.generated
    if expected.generated not in (None, generated):
        reason = f"names {generated} as the folder of the packages, and not {expected.generated}"
        yield "", display_path(project.root / SETTINGS), reason
    by_hand = {c.name for c in project.by_hand()}
    names = {c.name for c in project.packages()} - by_hand
    for name in expected.packages:
        if name not in names:
            why = "is owned by people now (by_hand)" if name in by_hand else f"is not in {PACKAGES} any more"
            yield name, display_path(project.generated / name), f"{why}, so that no check looks at it"
    for path in project.own():
        if path not in expected.own:
            yield "", display_path(project.generated / path), f"is new among what {PACKAGES} names as not gen's (own)"
