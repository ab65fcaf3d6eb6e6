"""What a check finds, as annotations of GitHub: at the fragment line that is behind it, where one is known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from generator.code.hunks import hunks
from generator.commands.build import Asked
from generator.commands.check import NO_FAULT, Finding
from generator.disk.lock import Fingerprints
from generator.disk.look import kind_of, show
from generator.disk.project import Project
from generator.disk.status import EDITED, RECORDS, STALE
from generator.errors import LoomError, printable
from generator.package.package import Package


def notes(project: Project, findings: list[Finding], errors: list[LoomError]) -> Iterator[str]:
    """A line for each finding and error; those that one fragment line explains are one."""
    woven: dict[str, Package] = {}
    stale: dict[tuple[str, int], list[str]] = {}
    for one in findings:
        line, source = _lines(project, one, woven) if one.state in (EDITED, STALE) else (0, None)
        if one.state == STALE and source:
            stale.setdefault(source, []).append(one.path)
            continue
        if one.state == STALE and one.path.endswith(RECORDS):
            continue  # told by the files that differ, or below
        from_ = f"; the line comes from {source[0]}:{source[1]}: gen pull {one.package}" if source else ""
        text = f"{one.reason}{from_}" + (f"\n{one.command}" if one.command else "")
        yield _line(one.path, line, one.state, text, "notice" if one.state in NO_FAULT else "error")
    for (path, line), places in stale.items():
        shown = next((show(root / path) for root in project.roots if (root / path).is_file()), path)
        yield _line(shown, line, STALE, f"not built yet: {', '.join(places)}\ngen build --all")
    told = {place for places in stale.values() for place in places} | {f.path for f in findings}
    for one in findings:
        if one.path.endswith(RECORDS) and one.state == STALE and not _told_of(one.package, one.path, told):
            yield _line(one.path, 0, STALE, f"{one.reason}\n{one.command}")
    for error in {str(error): error for error in errors}.values():
        found = re.fullmatch(r"(.+?)(?::(\d+))?", error.where or "")
        path, number = (found[1], int(found[2] or 0)) if found else ("", 0)
        yield _line(path, number, "error", f"{error.message}\n{error.remedy or ''}".strip())


def _told_of(package: str, path: str, told: set[str]) -> bool:
    """Whether something else of the package was told."""
    folder = path.rsplit("/", 1)[0]
    return any(other.startswith(f"{folder}/") and not other.endswith(RECORDS) for other in told)


def _lines(project: Project, one: Finding, woven: dict[str, Package]) -> tuple[int, tuple[str, int] | None]:
    """The first line of a file that differs, and the source line that it comes from."""
    combination = next((c for c in project.packages() if c.name == one.package), None)
    if combination is None:
        return 0, None
    with suppress(LoomError):
        if one.package not in woven:
            asked = Asked(project, combination, Fingerprints(project.roots), project.generated)
            woven[one.package] = asked.package()
        package = woven[one.package]
        path = one.path.removeprefix(f"{show(project.generated / one.package)}/")
        place = project.generated / one.package / path
        if path in package.files and kind_of(place) == "file":
            made = package.files[path].split("\n")
            for old, new in hunks(made, place.read_bytes().decode(errors="replace").split("\n")):
                segments = package.origins.get(path, [])
                row = min(old.start, len(segments) - 1)
                return new.start + 1, (segments[row][0][1].path, segments[row][0][1].line) if segments else None
    return 0, None


def _line(path: str, line: int, title: str, text: str, level: str = "error") -> str:
    """A command to GitHub's runner: https://docs.github.com/actions/reference/workflow-commands-for-github-actions"""
    place = [f"file={_escaped(printable(path), ':,')}"] if path else []
    place += [f"line={line}"] if line else []
    lines = "\n".join(map(printable, text.split("\n")))
    return f"::{level} {','.join([*place, f'title={title}'])}::{_escaped(lines)}"


def _escaped(text: str, more: str = "") -> str:
    for letter in f"%\r\n{more}":
        text = text.replace(letter, f"%{ord(letter):02X}")
    return text
