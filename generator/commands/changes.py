"""Finds what a build would change now, each difference once however many packages it occurs in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from generator.code.hunks import hunks
from generator.commands.packages import PackageBuilder, each_package
from generator.commands.woven import woven_before
from generator.disk.files import kind_of
from generator.disk.lock import LOCK, LOCKS, MAP, Combination
from generator.disk.project import Project
from generator.disk.status import CHANGED
from generator.errors import LoomError

CONTEXT = 3


@dataclass
class PendingChange:
    """A difference that a build would make.

    Attributes:
        text: the first of the places, as a unified diff without its head, or a sentence for a whole file.
        places: `path:line`, or `path` for a whole file, of every place where it would be made.
        packages: the packages of those places.
    """

    text: str
    places: list[str] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)


class Difference(NamedTuple):
    """A difference in one package; `key` is the same for the same difference elsewhere."""

    key: str
    text: str
    place: str


def pending(
    project: Project, report: Callable[[int, int, str], None] | None = None
) -> tuple[list[PendingChange], list[LoomError]]:
    """Compares the packages on disk with those that a build would make.

    Args:
        report: as in `check`.

    Returns:
        The changes in the order of packages, paths and lines, and the errors that kept a package from being woven.
    """
    changes: dict[str, PendingChange] = {}
    errors = []
    for name, result in each_package(package_changes, project, report=report):
        if isinstance(result, LoomError):
            errors.append(result)
            continue
        for key, text, place in result:
            change = changes.setdefault(key, PendingChange(text))
            change.places.append(place)
            if name not in change.packages:
                change.packages.append(name)
    return list(changes.values()), errors


def package_changes(builder: PackageBuilder) -> list[Difference]:
    """Compares one package on disk with that of a build."""
    if builder.by_hand:
        return []
    folder, found = builder.folder, builder.status()
    if not found.differs:
        return []
    is_new = not found.unchanged and (not found.only_lock or found.write == [LOCK])
    if is_new and all(kind_of(folder / path) == "" for path in found.write):
        return [Difference("new package", "a build would make this package", found.shown)]
    made, result = found.made or builder.woven(), list[Difference]()
    texts = woven_before(builder) if found.only_lock else {}
    for path, _, _, reason in found.files:
        shown = f"{found.shown}/{path}"
        if path in found.remove:
            result.append(Difference(f"gone {path}", "a build would remove this file", shown))
        elif path in found.write and path not in (LOCK, MAP):
            kind = "file" if path in texts else kind_of(folder / path)
            if kind == "file":
                before = texts[path] if path in texts else (folder / path).read_bytes()
                result += _file_changes(before, made[path], builder.combination, shown)
            elif kind:
                said = f"a build would put a file in the place of this {kind}"
                result.append(Difference(f"{kind} {path}", said, shown))
            elif found.only_lock and reason == CHANGED:
                said = f"{reason}, whose text is not here; built before and after the change, gen diff A B compares it"
                result.append(Difference(f"other {path}", said, shown))
            else:
                result.append(Difference(f"new {path}", "a build would add this file", shown))
    if not result:
        names = " and ".join(LOCKS if found.only_lock and path == LOCK else path for path in found.write)
        result.append(Difference(names, f"a build would renew {names} and no other file", found.shown))
    return result


def _file_changes(old: bytes, new: bytes, combination: Combination, shown: str) -> Iterator[Difference]:
    before, after = old.decode("utf-8", "replace").splitlines(), new.decode().splitlines()
    found = hunks(before, after)
    for removed, added in found:
        lines = [f" {line}" for line in before[max(removed.start - CONTEXT, 0) : removed.start]]
        body = [f"-{before[number]}" for number in removed] + [f"+{after[number]}" for number in added]
        tail = [f" {line}" for line in before[removed.stop : removed.stop + CONTEXT]]
        yield Difference(format_text(body, combination), "\n".join(lines + body + tail), f"{shown}:{removed.start + 1}")
    if not found:
        yield Difference(shown, "a build would change the ends of lines or the end of the file", shown)


def format_text(body: list[str], combination: Combination) -> str:
    """The changed lines, with the package's own names taken out, so that a change of every header is one change."""
    text = "\n".join(body)
    for word, blank in ((combination.name, "\0p"), (combination.architecture, "\0a"), (combination.target, "\0t")):
        text = re.sub(rf"\b{re.escape(word)}\b", blank, text)
    return text
