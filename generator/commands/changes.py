"""What a build would change now, each difference once however many packages it occurs in."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from generator.commands.build import in_parallel, is_current, woven
from generator.commands.hunks import hunks
from generator.commands.lock import Fingerprints
from generator.commands.project import LOCK, MAP, Combination, Project
from generator.commands.write import plan_write, read_output
from generator.errors import LoomError

CONTEXT = 3


@dataclass
class Change:
    """A difference that a build would make.

    Attributes:
        text: the first of the places, as a unified diff without its head, or a sentence for a whole file.
        places: `path:line`, or `path` for a whole file, of every place where it would be made.
        packages: the packages of those places.
    """

    text: str
    places: list[str] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)


def pending(
    project: Project, report: Callable[[int, int, str], None] | None = None
) -> tuple[list[Change], list[LoomError]]:
    """The differences between the packages on disk and those that a build would make.

    Args:
        report: called for each package that had to be woven, with its number, how many there are, and its name.

    Returns:
        The changes in the order of packages, paths and lines, and the errors that kept a package from being woven.

    Raises:
        LoomError: the list of packages cannot be read.
    """
    prints = Fingerprints(project.roots)
    jobs = [
        (project, combination, prints)
        for combination in project.packages()
        if not is_current(project.generated / combination.name, combination, prints)
    ]
    changes: dict[str, Change] = {}
    errors = []
    for number, (job, result) in enumerate(zip(jobs, in_parallel(_job, jobs, len(jobs)), strict=True), 1):
        if report:
            report(number, len(jobs), job[1].name)
        if isinstance(result, LoomError):
            errors.append(result)
            continue
        for key, text, place in result:
            change = changes.setdefault(key, Change(text))
            change.places.append(place)
            if job[1].name not in change.packages:
                change.packages.append(job[1].name)
    return list(changes.values()), errors


def _job(job: tuple) -> list[tuple[str, str, str]] | LoomError:
    try:
        return package_changes(*job)
    except LoomError as error:
        return error


def package_changes(project: Project, combination: Combination, prints: Fingerprints) -> list[tuple[str, str, str]]:
    """The changes of one package: for each a key that is the same for the same change elsewhere, its text, its place.

    Raises:
        LoomError: the package cannot be woven.
    """
    folder = project.generated / combination.name
    shown = project.show(folder)
    _, files = woven(project, combination, prints)
    plan = plan_write(folder, shown, files)
    if not os.path.lexists(folder / LOCK) and not plan.unchanged and not plan.blocked:
        return [("new package", "a build would make this package", shown)]
    result = []
    for path in plan.write:
        if path in (LOCK, MAP):
            continue
        old = read_output(folder / path, f"{shown}/{path}")
        if old is None:
            result.append((f"new {path}", "a build would add this file", f"{shown}/{path}"))
        else:
            before, after = old.decode("utf-8", "replace").splitlines(), files[path].decode().splitlines()
            result += _file_changes(before, after, combination, f"{shown}/{path}")
    result += [(f"gone {path}", "a build would remove this file", f"{shown}/{path}") for path in plan.remove]
    if not result and plan.write:
        names = " and ".join(plan.write)
        result.append((names, f"a build would renew {names} and no other file", shown))
    return result


def _file_changes(
    before: list[str], after: list[str], combination: Combination, shown: str
) -> list[tuple[str, str, str]]:
    result = []
    for old, new in hunks(before, after):
        lines = [f" {line}" for line in before[max(old.start - CONTEXT, 0) : old.start]]
        body = [f"-{before[number]}" for number in old] + [f"+{after[number]}" for number in new]
        tail = [f" {line}" for line in before[old.stop : old.stop + CONTEXT]]
        text = "\n".join(lines + body + tail)
        result.append((_key(body, combination), text, f"{shown}:{old.start + 1}"))
    if not result:
        result.append((shown, "a build would change the ends of lines or the end of the file", shown))
    return result


def _key(body: list[str], combination: Combination) -> str:
    """The changed lines, with the package's own names taken out, so that a change of every header is one change."""
    text = "\n".join(body)
    for word, blank in ((combination.name, "\0p"), (combination.architecture, "\0a"), (combination.target, "\0t")):
        text = re.sub(rf"\b{re.escape(word)}\b", blank, text)
    return text
