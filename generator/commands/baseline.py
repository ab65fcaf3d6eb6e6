"""Compares the scope of a check with a baseline, so that a change cannot silently exempt packages from the check."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from generator.commands.findings import UNCHECKED, Finding
from generator.disk.files import display_path, read_plain_file
from generator.disk.git import find_commit, list_paths, run_git
from generator.disk.lock import LOCK
from generator.disk.project import PACKAGES, SETTINGS, Project, parse_package_list, parse_settings
from generator.errors import LoomError


class CheckBaseline(NamedTuple):
    """The scope of an earlier check.

    Attributes:
        packages: names of the packages, except those that people own.
        owned: names of those.
        unmanaged: as in `PackageListing`.
        generated: the output folder in gen.toml; None if it is unknown.
    """

    packages: list[str]
    unmanaged: list[str]
    generated: str | None = None
    owned: tuple[str, ...] = ()


def read_baseline(path: Path) -> CheckBaseline:
    """Reads the baseline from a file like packages.toml."""
    if not path.exists():
        raise LoomError("is not there", display_path(path), "Name a file such as packages.toml.")
    return _parse_baseline(read_plain_file(path), display_path(path))


def read_baseline_at(project: Project, revision: str) -> CheckBaseline:
    """Reads the baseline from packages.toml at a revision of git; without that file, from the locks there."""
    root, commit, label = project.root, find_commit(project.root, revision), f"{SETTINGS} at {revision}"
    settings = run_git(root, "show", f"{commit}:./{SETTINGS}", code=None).decode(errors="replace")
    generated = parse_settings(settings, label).generated
    if Path(generated).is_absolute():
        raise LoomError("generated is not a path inside the project", label, "Give --expect FILE.")
    if not run_git(root, "ls-tree", commit, "--", f"{generated}/{PACKAGES}"):
        paths = [Path(path) for path in list_paths(root, "ls-tree", "-r", "--name-only", commit, "--", generated)]
        names = [path.parent.name for path in paths if path.name == LOCK and path.parent.parent == Path(generated)]
        return CheckBaseline(names, [], generated)
    text = run_git(root, "show", f"{commit}:./{generated}/{PACKAGES}").decode(errors="replace")
    return _parse_baseline(text, f"{generated}/{PACKAGES} at {revision}", generated)


def _parse_baseline(text: str, label: str, generated: str | None = None) -> CheckBaseline:
    listing = parse_package_list(text, label)
    names = [package.name for package in listing.packages or () if package not in listing.owned]
    return CheckBaseline(names, listing.unmanaged, generated, tuple(package.name for package in listing.owned))


def find_uncovered(project: Project, baseline: CheckBaseline) -> Iterator[Finding]:
    """Finds what the baseline checked and this check does not."""
    generated = project.settings.generated
    if baseline.generated not in (None, generated):
        reason = f"names {generated} as the folder of the packages, and not {baseline.generated}"
        yield Finding(UNCHECKED, "", display_path(project.root / SETTINGS), reason)
    owned = {package.name for package in project.listing.owned}
    names = {package.name for package in project.packages()} - owned
    for name in baseline.packages:
        if name not in names:
            why = "is owned by people now (by_hand)" if name in owned else f"is not in {PACKAGES} any more"
            yield Finding.at(project, UNCHECKED, name, f"{why}, so that no check looks at it")
    for name in sorted(owned.difference(baseline.packages, baseline.owned)):
        reason = "is new, and owned by people (by_hand), so that no check has ever looked at it"
        yield Finding.at(project, UNCHECKED, name, reason)
    for path in project.listing.unmanaged:
        if path not in baseline.unmanaged:
            reason = f"is new among what {PACKAGES} names as not gen's (own)"
            yield Finding(UNCHECKED, "", display_path(project.generated / path), reason)
