"""What a build would change now, each difference once however many packages it occurs in."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from generator.code.hunks import hunks
from generator.commands.build import Asked, each_package
from generator.commands.woven import woven_before
from generator.disk.lock import LOCK, LOCKS, MAP, Combination
from generator.disk.look import kind_of
from generator.disk.project import Project
from generator.disk.status import CHANGED
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
        report: as in `check`.

    Returns:
        The changes in the order of packages, paths and lines, and the errors that kept a package from being woven.
    """
    changes: dict[str, Change] = {}
    errors = []
    for name, result in each_package(package_changes, project, report=report):
        if isinstance(result, LoomError):
            errors.append(result)
            continue
        for key, text, place in result:
            change = changes.setdefault(key, Change(text))
            change.places.append(place)
            if name not in change.packages:
                change.packages.append(name)
    return list(changes.values()), errors


def package_changes(asked: Asked) -> list[tuple[str, str, str]]:
    """The changes of one package: for each a key that is the same for the same change elsewhere, its text and place."""
    if asked.by_hand:
        return []
    folder, found = asked.folder, asked.survey()
    if not found.differs:
        return []
    is_new = not found.unchanged and (not found.only_lock or found.write == [LOCK])
    if is_new and all(kind_of(folder / path) == "" for path in found.write):
        return [("new package", "a build would make this package", found.shown)]
    files, result = found.made or asked.woven(), []
    texts = woven_before(asked) if found.only_lock else {}
    for path, _, _, reason in found.files:
        shown = f"{found.shown}/{path}"
        if path in found.remove:
            result.append((f"gone {path}", "a build would remove this file", shown))
        elif path in found.write and path not in (LOCK, MAP):
            kind = "file" if path in texts else kind_of(folder / path)
            if found.only_lock and not kind and reason == CHANGED:
                said = f"{reason}, whose text is not here; built before and after the change, gen diff A B compares it"
                result.append((f"other {path}", said, shown))
            elif not kind:
                result.append((f"new {path}", "a build would add this file", shown))
            elif kind == "file":
                data = texts[path] if path in texts else (folder / path).read_bytes()
                before = data.decode("utf-8", "replace").splitlines()
                result += _file_changes(before, files[path].decode().splitlines(), asked.combination, shown)
            else:
                result.append((f"{kind} {path}", f"a build would put a file in the place of this {kind}", shown))
    if not result:
        names = " and ".join(LOCKS if found.only_lock and path == LOCK else path for path in found.write)
        result.append((names, f"a build would renew {names} and no other file", found.shown))
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
        result.append((plain(body, combination), text, f"{shown}:{old.start + 1}"))
    if not result:
        result.append((shown, "a build would change the ends of lines or the end of the file", shown))
    return result


def plain(body: list[str], combination: Combination) -> str:
    """The changed lines, with the package's own names taken out, so that a change of every header is one change."""
    text = "\n".join(body)
    for word, blank in ((combination.name, "\0p"), (combination.architecture, "\0a"), (combination.target, "\0t")):
        text = re.sub(rf"\b{re.escape(word)}\b", blank, text)
    return text
