"""Prints what a change means: packages that changed alike as one, and equal findings once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import click

from generator.commands.against import Report, against, as_json
from generator.commands.console import complain, write_json
from generator.disk.project import Project
from generator.errors import LoomError
from generator.programs.verdicts import (
    ENTRIES,
    EQUAL_VALUES,
    OTHER_INTERFACE,
    OTHER_LAYOUT,
    OTHER_NUMBERS,
    OTHER_PARAMETERS,
    SAME_PROGRAM,
    SAME_TEXT,
    UNDECIDED,
    VERDICTS,
)

MEANING = {
    SAME_TEXT: "no file of the program differs",
    SAME_PROGRAM: "the same computation",
    EQUAL_VALUES: "another computation, the same results",
    OTHER_NUMBERS: "the results differ",
    OTHER_PARAMETERS: "what checkpoints hold differs",
    OTHER_LAYOUT: "arrays lie otherwise on devices",
    OTHER_INTERFACE: "settings, flags, presets or shapes differ",
    UNDECIDED: "not known",
}
NO_OTHER = "no package is another program"
SHOWN = 6  # packages, sources or files that a line names


@dataclass
class Group:
    """One verdict with one reason."""

    verdict: str
    detail: str
    entries: list[str]
    sources: dict[str, list[int]]
    packages: list[str] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)  # the largest of all packages


def show(project: Project, revision: str, in_json: bool, in_markdown: bool, names: Collection[str] = ()) -> int:
    """Prints the verdicts, for people as soon as they are known.

    Args:
        names: as in `against`.

    Returns:
        The exit code.
    """

    def found(alike: list[Report]) -> None:
        if not in_json and not in_markdown:
            click.echo(block(alike) + "\n")

    commit, reports, errors = against(project, revision, lambda line: click.echo(line, err=True), found, names)
    if in_json:
        write_json(as_json(commit, reports, errors))
    else:
        click.echo((markdown if in_markdown else _summary)(commit[:10], reports, errors))
    for error in errors if not in_json else []:
        complain(error)
    return 2 if errors else 1 if any(report.differs for report in reports) else 0


def groups(reports: list[Report]) -> list[Group]:
    """The findings of all packages, the gravest first."""
    single: dict[tuple, Group] = {}
    for report in reports:
        for finding in report.findings:
            detail = finding.detail if finding.verdict != SAME_PROGRAM else finding.detail.partition(":")[0]
            key = finding.verdict, detail, finding.entry, tuple(report.causes)
            group = single.setdefault(key, Group(finding.verdict, detail, [finding.entry], report.causes))
            group.packages.append(report.name)
            for name, value in finding.numbers.items():
                group.numbers[name] = max(value, group.numbers.get(name, 0.0))
    merged: dict[tuple, Group] = {}
    for group in single.values():
        numbers = tuple(group.numbers) if group.verdict != SAME_PROGRAM else ()
        detail = "" if group.verdict == SAME_PROGRAM and "bytecode" not in group.detail else group.detail
        place = group.verdict, detail, numbers, tuple(group.packages), tuple(group.sources)
        if (there := merged.setdefault(place, group)) is not group:
            there.entries += [entry for entry in group.entries if entry not in there.entries]
            if group.detail not in there.detail.split("; "):
                there.detail += f"; {group.detail}"
    return sorted(merged.values(), key=lambda group: -VERDICTS.index(group.verdict))


def plain(before: str, reports: list[Report]) -> str:
    """For people at a terminal; `before` says what the packages are compared with."""
    changes = dict.fromkeys(report.change for report in reports)
    blocks = [block([report for report in reports if report.change == change]) for change in changes]
    return "\n\n".join([*blocks, _summary(before, reports, ())])


def block(alike: list[Report]) -> str:
    """What is known of packages that changed alike: the first stands for all where their verdicts are the same."""
    first, *others = [report.name for report in alike]
    lines = [f"{first}: {_few(alike[0].files)} changed" if alike[0].files else first]
    if others:
        lines.append(f"  and alike in {len(others)} more: {', '.join(others)}")
    for group in groups(alike):
        of = "" if len(group.packages) == len(alike) else f", {_packages(group.packages)}"
        lines.append(f"  {group.verdict} ({MEANING[group.verdict]}): {_entries(group.entries)}{of}")
        lines += [f"    {line}" for line in (_why(group), _sources(group.sources)) if line]
    return "\n".join(lines)


def markdown(before: str, reports: list[Report], errors: Sequence[LoomError]) -> str:
    """A comment for a review."""
    lines = [f"**{_summary(before, reports, errors)}**", "", *(f"- error: {error}" for error in errors)]
    lines += [*([""] if errors else []), "| verdict | of | packages | how it is known | fragments |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for group in groups(reports):
        cells = group.verdict, _entries(group.entries), _packages(group.packages), _why(group), _sources(group.sources)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    files = _files(reports)
    if files:
        lines += ["", f"<details><summary>{len(files)} files whose text changed</summary>", ""]
        lines += [f"- `{path}`: {_packages(names)}" for path, names in files.items()]
        lines += ["", "</details>"]
    return "\n".join(lines)


def _summary(before: str, reports: list[Report], errors: Sequence[LoomError]) -> str:
    differ, text = (sum(bool(getattr(report, name)) for report in reports) for name in ("differs", "files"))
    same = f"{differ} may be another" if differ else "none of them is another program" if errors else NO_OTHER
    same += "; packages that cannot be woven are left out" if errors else ""
    count = f"{len(reports)} package{'' if len(reports) == 1 else 's'}"
    return f"against {before}: {count}, {text} with another text; {same}"


def _entries(entries: list[str]) -> str:
    return "all entry points" if set(entries) == set(ENTRIES) else ", ".join(entries)


def _packages(names: list[str]) -> str:
    count = f"{len(names)} package{'' if len(names) == 1 else 's'}"
    return f"{count} ({_few(names)})"


def _few(names: list[str]) -> str:
    more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _why(group: Group) -> str:
    most = "up to " if len(group.packages) > 1 else ""
    numbers = ", ".join(f"{name} {most}{value:.2g}" for name, value in group.numbers.items())
    return ": ".join(filter(None, (group.detail, numbers)))


def _sources(sources: dict[str, list[int]]) -> str:
    shown = [f"{source}:{_ranges(lines)}" if lines else source for source, lines in sources.items() if source]
    return _few(shown)


def _ranges(lines: list[int]) -> str:
    """Line numbers, those that follow each other as one range."""
    parts: list[list[int]] = []
    for line in lines:
        if parts and line == parts[-1][-1] + 1:
            parts[-1].append(line)
        else:
            parts.append([line])
    more = "..." if len(parts) > SHOWN else ""
    return ",".join(f"{it[0]}-{it[-1]}" if len(it) > 1 else str(it[0]) for it in parts[:SHOWN]) + more


def _files(reports: list[Report]) -> dict[str, list[str]]:
    files: dict[str, list[str]] = {}
    for report in reports:
        for path in report.files:
            files.setdefault(path, []).append(report.name)
    return dict(sorted(files.items()))
