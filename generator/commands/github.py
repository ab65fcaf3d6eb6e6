"""Writes findings of a check as annotations of GitHub: at the fragment line that is behind each, where it is known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from generator.code.hunks import hunks
from generator.code.traced import Origin
from generator.commands.findings import NO_FAULT, Finding
from generator.commands.packages import every_package
from generator.disk.files import display_path, kind_of
from generator.disk.project import Project
from generator.disk.status import EDITED, RECORDS, STALE
from generator.errors import LoomError, printable
from generator.package.package import Package


class Sources:
    """Finds the source behind the first line of a file that differs; weaves each package once."""

    def __init__(self, project: Project):
        self.asked = {asked.combination.name: asked for asked in every_package(project)}
        self.woven: dict[str, Package] = {}

    def find(self, finding: Finding) -> tuple[int, Origin | None]:
        """The line of the file, from 1, and where it comes from; 0 and None where that is not known."""
        asked = self.asked.get(finding.package)
        if asked is None or finding.state not in (EDITED, STALE):
            return 0, None
        with suppress(LoomError):
            if finding.package not in self.woven:
                self.woven[finding.package] = asked.package()
            package = self.woven[finding.package]
            path = finding.path.removeprefix(f"{display_path(asked.folder)}/")
            if path in package.files and kind_of(asked.folder / path) == "file":
                text = (asked.folder / path).read_bytes().decode(errors="replace")
                for old, new in hunks(package.files[path].split("\n"), text.split("\n")):
                    segments = package.origins.get(path, [])
                    row = min(old.start, len(segments) - 1)
                    return new.start + 1, segments[row][0][1] if segments else None
        return 0, None


def annotate(project: Project, findings: list[Finding], errors: list[LoomError]) -> Iterator[str]:
    """Yields a line for each finding and error; stale lines that one fragment line explains are one."""
    sources = Sources(project)
    stale: dict[Origin, list[str]] = {}
    explained: set[str] = set()  # packages of which more than the records is told
    late = []
    for one in findings:
        line, source = sources.find(one)
        if one.state == STALE and one.path.endswith(RECORDS):
            late.append(one)
            continue
        explained.add(one.package)
        if one.state == STALE and source:
            stale.setdefault(source, []).append(one.path)
            continue
        from_ = f"; the line comes from {source}: gen pull {one.package}" if source else ""
        text = f"{one.reason}{from_}" + (f"\n{one.command}" if one.command else "")
        yield _line(one.path, line, one.state, text, "notice" if one.state in NO_FAULT else "error")
    for (path, line), places in stale.items():
        shown = next((display_path(root / path) for root in project.roots if (root / path).is_file()), path)
        yield _line(shown, line, STALE, f"not built yet: {', '.join(places)}\ngen build --all")
    for one in late:
        if one.package not in explained:
            yield _line(one.path, 0, STALE, f"{one.reason}\n{one.command}")
    for error in {str(error): error for error in errors}.values():
        found = re.fullmatch(r"(.+?)(?::(\d+))?", error.where or "")
        path, number = (found[1], int(found[2] or 0)) if found else ("", 0)
        yield _line(path, number, "error", f"{error.message}\n{error.remedy or ''}".strip())


def _line(path: str, line: int, title: str, text: str, level: str = "error") -> str:
    """A command to GitHub's runner: https://docs.github.com/actions/reference/workflow-commands-for-github-actions"""
    place = [f"file={_escape(printable(path), ':,')}"] if path else []
    place += [f"line={line}"] if line else []
    lines = "\n".join(map(printable, text.split("\n")))
    return f"::{level} {','.join([*place, f'title={title}'])}::{_escape(lines)}"


def _escape(text: str, more: str = "") -> str:
    for letter in f"%\r\n{more}":
        text = text.replace(letter, f"%{ord(letter):02X}")
    return text
