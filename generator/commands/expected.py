"""What a check must look at, by a list or an older revision: a change cannot take packages out of it unseen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from generator.disk.git import git
from generator.disk.lock import LOCK
from generator.disk.look import show
from generator.disk.project import PACKAGES, SETTINGS, Project, read_listed, read_settings
from generator.errors import LoomError


class Expected(NamedTuple):
    """What was checked.

    Attributes:
        source: where this is said.
        packages: their names, without those that people own.
        own: paths that were named as not gen's.
        generated: the folder that they were in, as gen.toml has it; None where that is not known.
    """

    source: str
    packages: list[str]
    own: list[str]
    generated: str | None = None


def by_file(path: Path) -> Expected:
    """What a file like packages.toml lists."""
    listed = read_listed(path, show(path))
    if listed is None:
        raise LoomError("is not there", show(path), "Name a file such as packages.toml.")
    return Expected(show(path), [c.name for c in listed.packages if c not in listed.by_hand], listed.own)


def by_revision(project: Project, revision: str) -> Expected:
    """What the project lists at a revision of git, or else has a lock of."""
    commit = git(
        project.root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", code=None
    )
    if not (name := commit.decode().strip()):
        raise LoomError(f"there is no revision {revision!r}", show(project.root), "Fetch it, or name another.")
    settings = git(project.root, "show", f"{name}:./{SETTINGS}", code=None).decode(errors="replace")
    generated = read_settings(settings, f"{SETTINGS} at {revision}")["generated"]
    if Path(generated).is_absolute():
        raise LoomError("generated is no path inside the project", f"{SETTINGS} at {revision}", "Give --expect FILE.")
    shown = f"{generated}/{PACKAGES} at {revision}"
    paths = git(project.root, "ls-tree", "-r", "--name-only", "-z", name, "--", generated).decode(errors="replace")
    inner = [path if generated == "." else path.removeprefix(f"{generated}/") for path in paths.split("\0")]
    if PACKAGES in inner:
        text = git(project.root, "show", f"{name}:./{generated}/{PACKAGES}").decode(errors="replace")
        listed = read_listed(text, shown)
        assert listed is not None
        return Expected(shown, [c.name for c in listed.packages if c not in listed.by_hand], listed.own, generated)
    return Expected(
        shown, [p.split("/")[0] for p in inner if p.endswith(f"/{LOCK}") and p.count("/") == 1], [], generated
    )


def unchecked(project: Project, expected: Expected) -> Iterator[tuple[str, str, str]]:
    """Package, path and reason of what was checked and is not any more."""
    if expected.generated not in (None, project.settings["generated"]):
        reason = f"names {project.settings['generated']} as the folder of the packages, and not {expected.generated}"
        yield "", show(project.root / SETTINGS), reason
    names = {c.name for c in project.packages() if c not in project.by_hand()}
    for name in expected.packages:
        if name not in names:
            by_hand = name in {c.name for c in project.by_hand()}
            why = "is owned by people now (by_hand)" if by_hand else f"is not in {PACKAGES} any more"
            yield name, show(project.generated / name), f"{why}, so that no check looks at it"
    for path in project.own():
        if path not in expected.own:
            yield "", show(project.generated / path), f"is new among what {PACKAGES} names as not gen's (own)"
