"""Says what the change since a revision means: for each package and entry point a verdict, by program."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from os import cpu_count
from typing import Any, NamedTuple

import click

from generator.commands.cached_weave import Files, Say, weave_cached
from generator.commands.causes import find_cause_lines
from generator.commands.console import complain, write_json
from generator.commands.packages import PackageBuilder
from generator.disk.cache import prune
from generator.disk.files import sha256
from generator.disk.git import read_packages_at
from generator.disk.lock import LOCK, MAP, Combination, InputDigests, Lock, parse_lock
from generator.disk.project import Project
from generator.errors import LoomError, nearest
from generator.programs.verdicts import (
    ENTRIES,
    OTHER_INTERFACE,
    SAME_PROGRAM,
    SAME_TEXT,
    UNDECIDED,
    VERDICTS,
    EntryVerdict,
    PackageFiles,
    judge,
)

WHOLE = "package"  # the entry point of a package that only one side has
UNKNOWN = "its text there is not committed, and this gen makes another of the sources there: gen build it at both"
SHOWN = 6  # packages, sources or ranges of lines that a row names
HEAD = "verdict", "of", "packages", "how it is known", "fragments"


class PackagePair(NamedTuple):
    """A package before and after.

    Attributes:
        before: its files, the map included, None where it was not there.
        unknown: of the files that differ those whose text before is not known.
    """

    combination: Combination
    before: Files | None
    after: Files
    unknown: Collection[str] = ()


@dataclass
class Report:
    """What the change means for one package.

    Attributes:
        files: whose text changed, without the lock and the map.
        causes: source -> its lines that made files change, '' for what no map covers.
        findings: one or more for each entry point.
    """

    name: str
    files: list[str] = field(default_factory=list)
    causes: dict[str, list[int]] = field(default_factory=dict)
    findings: list[EntryVerdict] = field(default_factory=list)

    @property
    def differs(self) -> bool:
        return any(finding.verdict not in (SAME_TEXT, SAME_PROGRAM) for finding in self.findings)

    def as_table(self) -> dict[str, Any]:
        """Returns the report for JSON, which has no infinity."""
        table = {**asdict(self), "differs": self.differs}
        for finding in table["findings"]:
            finding["numbers"] = {k: v if v < float("inf") else "infinite" for k, v in finding["numbers"].items()}
        return table


def against(
    project: Project, revision: str, say: Say, names: Collection[str] = ()
) -> tuple[str, list[Report], list[LoomError]]:
    """Compares what weaving gives now with the packages that git has at a revision.

    Args:
        say: is told what goes on.
        names: of the packages to compare; all by default.

    Returns:
        The commit, a report for each package by its place in the list, and the errors of those that cannot be woven.
    """
    commit, before = read_packages_at(project.generated, revision)
    listed = [it for it in project.packages() if not names or it.name in names]
    gone = {name for name, files in before.items() if LOCK in files} - {it.name for it in listed}
    for name in names:
        if name not in gone and name not in [it.name for it in listed]:
            known = [it.name for it in project.packages()]
            raise LoomError(f"there is no package {name!r}, nor was at {revision}", None, nearest(name, known))
    prints = InputDigests(project.roots)
    builder = [PackageBuilder(project, it, prints, project.generated) for it in listed]
    builder = [it for it in builder if not _is_current(it, before.get(it.combination.name, {}))]
    now = list(zip(builder, weave_cached(builder, say), strict=True))
    errors = {str(files): files for _, files in now if isinstance(files, LoomError)}
    sides = _sides([(it, files) for it, files in now if not isinstance(files, LoomError)], before, commit, say)
    found = {it.name: Report(it.name, findings=_all(SAME_TEXT)) for it in listed}
    found |= {report.name: report for report in compare_sides(sides, say)}
    lost = [EntryVerdict(WHOLE, OTHER_INTERFACE, "is no longer made")]
    found |= {name: Report(name, findings=lost) for name in sorted(gone) if not names or name in names}
    for it, files in now:
        if isinstance(files, LoomError):
            del found[it.combination.name]
    return commit, list(found.values()), list(errors.values())


def _all(verdict: str, detail: str = "") -> list[EntryVerdict]:
    return [EntryVerdict(entry, verdict, detail) for entry in ENTRIES]


def _lock(files: Files) -> Lock | None:
    """Returns the lock among files, if it is as gen wrote it."""
    try:
        text = files[LOCK].decode()
        lock = parse_lock(text)
    except (KeyError, ValueError, RecursionError):
        return None
    return lock if lock.text == text else None


def _is_current(builder: PackageBuilder, files: Files) -> bool:
    """Tells whether the lock among files says that they are, or would be, what is woven now."""
    lock = _lock(files)
    if lock is None or lock.combination != builder.combination or builder.digests.find_changes(lock):
        return False
    return {path: sha256(data) for path, data in files.items() if path != LOCK} in ({}, lock.outputs)


def _sides(
    now: list[tuple[PackageBuilder, Files]], before: dict[str, Files], commit: str, say: Say
) -> list[PackagePair]:
    """Returns the sides of packages; of those of which git has the lock alone, the text is woven at the commit."""
    locks = {}
    for builder, _ in now:
        files = before.get(builder.combination.name, {})
        if len(files) == 1 and (lock := _lock(files)):
            locks[builder.combination] = lock
    then = [
        replace(builder, combination=locks[it].combination)
        for builder, _ in now
        if (it := builder.combination) in locks
    ]
    made = dict(zip(locks, weave_cached(then, say, commit), strict=True))
    sides = []
    for builder, after in now:
        combination, unknown = builder.combination, set[str]()
        old = before.get(combination.name)
        if combination in locks:
            texts = [it for it in (after, made[combination]) if not isinstance(it, LoomError)]
            known = {sha256(data): data for files in texts for data in files.values()}
            outputs = locks[combination].outputs
            old = {path: known[digest] for path, digest in outputs.items() if digest in known}
            unknown = outputs.keys() - old.keys() - {MAP}
        sides.append(PackagePair(combination, old, after, unknown))
    return sides


def compare_sides(sides: Sequence[PackagePair], say: Say) -> list[Report]:
    """Returns what the change of each package means."""
    with ThreadPoolExecutor(max(1, (cpu_count() or 1) // 2)) as pool:
        reports = list(pool.map(lambda each: _report(each, say), sides))
    prune()
    return reports


def _report(each: PackagePair, say: Say) -> Report:
    combination, before, after, unknown = each
    report = Report(combination.name)
    if before is None:
        report.findings = [EntryVerdict(WHOLE, OTHER_INTERFACE, "is new")]
        return report
    paths = sorted((before.keys() | after.keys() | {*unknown}) - {LOCK, MAP})
    report.files = [path for path in paths if before.get(path) != after.get(path)]
    if unknown:
        report.findings = _all(UNDECIDED, UNKNOWN)
    elif report.files:
        report.causes = find_cause_lines(combination, before, after, report.files)
        report.findings = judge(PackageFiles(report.name, before), PackageFiles(report.name, after), say)
    else:
        report.findings = _all(SAME_TEXT)
    return report


def print_reports(
    project: Project, revision: str, in_json: bool, in_markdown: bool, names: Collection[str] = ()
) -> int:
    """Prints the verdicts, and returns the exit code; `names` as in `against`."""
    commit, reports, errors = against(project, revision, lambda line: click.echo(line, err=True), names)
    if in_json:
        packages = [report.as_table() for report in reports]
        write_json({"against": commit, "packages": packages, "errors": [str(error) for error in errors]})
    else:
        click.echo((format_markdown if in_markdown else format_text)(commit[:10], reports, errors))
    for error in errors if not in_json else []:
        complain(error)
    return 2 if errors else 1 if any(report.differs for report in reports) else 0


def format_text(before: str, reports: list[Report], errors: Sequence[LoomError] = ()) -> str:
    """Returns the verdicts for people at a terminal; `before` says what the packages are compared with."""
    lines = []
    for verdict, entries, packages, why, sources in rows(reports):
        lines += [f"{verdict}: {entries} of {packages}", *(f"  {line}" for line in (why, sources) if line), ""]
    return "\n".join([*lines, _summary(before, reports, errors)])


def format_markdown(before: str, reports: list[Report], errors: Sequence[LoomError]) -> str:
    """Returns a comment for a review."""
    lines = [f"**{_summary(before, reports, errors)}**", "", *(f"- error: {error}" for error in errors), ""]
    cells = [HEAD, ("---",) * len(HEAD), *rows(reports)]
    return "\n".join([*lines, *("| " + " | ".join(it.replace("|", "\\|") for it in row) + " |" for row in cells)])


def rows(reports: list[Report]) -> list[tuple[str, ...]]:
    """Returns each verdict with one reason once, the gravest first, in the columns of HEAD."""
    single: dict[tuple, tuple[list[str], dict[str, float]]] = {}
    for report in reports:
        for finding in report.findings:
            key = finding.verdict, finding.entry, finding.detail, _few(_places(report.causes))
            packages, numbers = single.setdefault(key, ([], {}))
            packages.append(report.name)
            for name, value in finding.numbers.items():
                numbers[name] = max(value, numbers.get(name, 0.0))
    merged: dict[tuple, list[str]] = {}
    for (verdict, entry, detail, sources), (packages, numbers) in single.items():
        most = "up to " if len(packages) > 1 else ""
        far = ", ".join(f"{name} {most}{value:.2g}" for name, value in numbers.items())
        why = ": ".join(filter(None, (detail, far)))
        count = f"{len(packages)} package{'' if len(packages) == 1 else 's'} ({_few(packages)})"
        merged.setdefault((verdict, count, why, sources), []).append(entry)
    gravest = sorted(merged.items(), key=lambda it: -VERDICTS.index(it[0][0]))
    return [
        (verdict, "all entry points" if set(entries) == set(ENTRIES) else ", ".join(entries), count, why, sources)
        for (verdict, count, why, sources), entries in gravest
    ]


def _summary(before: str, reports: list[Report], errors: Sequence[LoomError]) -> str:
    differ, text = (sum(bool(getattr(report, name)) for report in reports) for name in ("differs", "files"))
    same = f"{differ} may be another" if differ else f"{'none of them' if errors else 'no package'} is another program"
    same += "; packages that cannot be woven are left out" if errors else ""
    count = f"{len(reports)} package{'' if len(reports) == 1 else 's'}"
    return f"against {before}: {count}, {text} with another text; {same}"


def _few(names: list[str]) -> str:
    more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _places(sources: dict[str, list[int]]) -> list[str]:
    """Returns sources with their lines, those that follow each other as one range."""
    found = []
    for source, lines in sources.items():
        starts = [line for line in lines if line - 1 not in lines]
        ends = [line for line in lines if line + 1 not in lines]
        ranges = [str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True)]
        more = "..." if len(ranges) > SHOWN else ""
        found += [f"{source}:{','.join(ranges[:SHOWN])}{more}".rstrip(":")] if source else []
    return found
