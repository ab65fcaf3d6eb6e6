"""Finds what a build would change, and reports each difference once for all packages that have it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from generator.code.hunks import hunks
from generator.commands.cached_weave import recover_locked_files
from generator.commands.packages import PackageBuilder, map_packages
from generator.disk.files import kind_of
from generator.disk.lock import LOCK, LOCKS, MAP, Combination
from generator.disk.project import Project
from generator.disk.status import CHANGED
from generator.errors import LoomError

CONTEXT = 3
Difference = tuple[str, str, str]  # key, which equal differences of other packages share; text; place


@dataclass
class PendingChange:
    """A change that a build would make.

    Attributes:
        text: a unified diff of the first place, without its header, or a sentence about a whole file.
        places: each is `path:line`, or `path` of a whole file.
        packages: the packages of those places.
    """

    text: str
    places: list[str] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)


def find_pending_changes(
    project: Project, report: Callable[[int, int, str], None] | None = None
) -> tuple[list[PendingChange], list[LoomError]]:
    """Compares the packages on disk with a build.

    Args:
        report: as in `map_packages`.

    Returns:
        The changes in the order of packages, paths and lines, and the errors of packages that cannot be woven.
    """
    changes: dict[str, PendingChange] = {}
    errors = []
    for name, differences in map_packages(compare_package, project, report=report):
        if isinstance(differences, LoomError):
            errors.append(differences)
            continue
        for key, text, place in differences:
            change = changes.setdefault(key, PendingChange(text))
            change.places.append(place)
            if name not in change.packages:
                change.packages.append(name)
    return list(changes.values()), errors


def compare_package(builder: PackageBuilder) -> list[Difference]:
    """Compares one package on disk with a build; one that people own has no differences."""
    if builder.is_owned:
        return []
    folder, status = builder.folder, builder.compare()
    if not status.differs:
        return []
    is_new = not status.unchanged and (not status.is_lock_only or status.to_write == [LOCK])
    if is_new and all(kind_of(folder / path) == "" for path in status.to_write):
        return [("new package", "a build would make this package", status.label)]
    outputs, differences = status.outputs or builder.weave_files(), list[Difference]()
    before = recover_locked_files(builder) if status.is_lock_only else {}
    for path, _, _, reason in status.files:
        label = f"{status.label}/{path}"
        if path in status.to_remove:
            differences.append((f"gone {path}", "a build would remove this file", label))
        elif path in status.to_write and path not in (LOCK, MAP):
            kind = "file" if path in before else kind_of(folder / path)
            if kind == "file":
                old = before[path] if path in before else (folder / path).read_bytes()
                differences += _compare_file(old, outputs[path], builder.combination, label)
            elif kind:
                differences.append((f"{kind} {path}", f"a build would replace this {kind} by a file", label))
            elif status.is_lock_only and reason == CHANGED:
                text = f"{reason}, whose text is not here; built before and after the change, gen diff A B compares it"
                differences.append((f"other {path}", text, label))
            else:
                differences.append((f"new {path}", "a build would add this file", label))
    if not differences:
        names = " and ".join(LOCKS if status.is_lock_only and path == LOCK else path for path in status.to_write)
        differences.append((names, f"a build would renew {names} and no other file", status.label))
    return differences


def _compare_file(old: bytes, new: bytes, combination: Combination, label: str) -> Iterator[Difference]:
    before, after = old.decode("utf-8", "replace").splitlines(), new.decode().splitlines()
    for removed, added in hunks(before, after):
        head = [f" {line}" for line in before[max(removed.start - CONTEXT, 0) : removed.start]]
        body = [f"-{before[number]}" for number in removed] + [f"+{after[number]}" for number in added]
        tail = [f" {line}" for line in before[removed.stop : removed.stop + CONTEXT]]
        yield _blank_names(body, combination), "\n".join(head + body + tail), f"{label}:{removed.start + 1}"
    if before == after:
        yield label, "a build would change the ends of lines or the end of the file", label


def _blank_names(body: list[str], combination: Combination) -> str:
    """Replaces the names of the package in changed lines, so that a change of every header is one change."""
    text = "\n".join(body)
    for word, blank in ((combination.name, "\0p"), (combination.architecture, "\0a"), (combination.target, "\0t")):
        text = re.sub(rf"\b{re.escape(word)}\b", blank, text)
    return text
