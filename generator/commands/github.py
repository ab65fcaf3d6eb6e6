"""Writes the findings of a check as annotations of GitHub, at the fragment line behind each if it is known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import takewhile

from generator.code.hunks import hunks
from generator.code.traced import Origin
from generator.commands.findings import NO_FAULT, Finding
from generator.commands.packages import PackageBuilder, create_builders
from generator.disk.files import display_path, kind_of
from generator.disk.project import Project
from generator.disk.status import EDITED, RECORDS, STALE
from generator.errors import LoomError, printable
from generator.package.package import Package


def _find_source(finding: Finding, builder: PackageBuilder, package: Package) -> tuple[int, Origin | None]:
    """Returns the first line of a file, from 1, that differs from the woven one, and its origin; 0 without one."""
    path = finding.path.removeprefix(f"{display_path(builder.folder)}/")
    if path in package.files and kind_of(builder.folder / path) == "file":
        text = (builder.folder / path).read_bytes().decode(errors="replace")
        woven, lines = package.files[path].split("\n"), text.split("\n")
        for old, new in hunks(woven, lines):
            if not (segments := package.origins.get(path, [])):
                return new.start + 1, None
            row = min(old.start, len(segments) - 1)
            letters = zip(woven[row], lines[new.start], strict=False) if new else ()
            column = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], letters))
            return new.start + 1, [origin for start, origin in segments[row] if start <= column][-1]
    return 0, None


def annotate(project: Project, findings: list[Finding], errors: list[LoomError]) -> Iterator[str]:
    """Yields an annotation for each finding and error; stale lines from one fragment line share one."""
    builders = {builder.combination.name: builder for builder in create_builders(project)}
    weave = cache(lambda name: builders[name].weave())
    stale: dict[Origin, list[str]] = {}
    explained: set[str] = set()  # packages with a finding besides their records
    records = []
    for finding in findings:
        line, source = 0, None
        if (builder := builders.get(finding.package)) and finding.state in (EDITED, STALE):
            with suppress(LoomError):
                line, source = _find_source(finding, builder, weave(finding.package))
        if finding.state == STALE and finding.path.endswith(RECORDS):
            records.append(finding)
            continue
        explained.add(finding.package)
        if finding.state == STALE and source:
            stale.setdefault(source, []).append(finding.path)
            continue
        origin = f"; the line comes from {source}: gen pull {finding.package}" if source else ""
        text = f"{finding.reason}{origin}" + (f"\n{finding.command}" if finding.command else "")
        level = "notice" if finding.state in NO_FAULT else "error"
        yield _format_annotation(finding.path, line, finding.state, text, level)
    for (path, line), places in stale.items():
        label = next((display_path(root / path) for root in project.roots if (root / path).is_file()), path)
        yield _format_annotation(label, line, STALE, f"not built yet: {', '.join(places)}\ngen build --all")
    for finding in records:
        if finding.package not in explained:
            yield _format_annotation(finding.path, 0, STALE, f"{finding.reason}\n{finding.command}")
    for error in {str(error): error for error in errors}.values():
        match = re.fullmatch(r"(.+?)(?::(\d+))?", error.where or "")
        path, line = (match[1], int(match[2] or 0)) if match else ("", 0)
        yield _format_annotation(path, line, "error", f"{error.message}\n{error.remedy or ''}".strip())


def _format_annotation(path: str, line: int, title: str, text: str, level: str = "error") -> str:
    """Formats a command: https://docs.github.com/actions/reference/workflow-commands-for-github-actions"""
    place = [f"file={_escape(printable(path), ':,')}"] if path else []
    place += [f"line={line}"] if line else []
    lines = "\n".join(map(printable, text.split("\n")))
    return f"::{level} {','.join([*place, f'title={title}'])}::{_escape(lines)}"


def _escape(text: str, more: str = "") -> str:
    for letter in f"%\r\n{more}":
        text = text.replace(letter, f"%{ord(letter):02X}")
    return text
