"""`gen diff --against`: reports what the change since a revision means for each package and entry point."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from os import cpu_count
from typing import Any, NamedTuple

import click

from generator.commands import tables
from generator.commands.cached_weave import Files, Say, weave_cached
from generator.commands.causes import find_cause_lines
from generator.commands.console import complain, write_json
from generator.commands.packages import PackageBuilder, create_builders
from generator.disk.cache import prune
from generator.disk.files import sha256
from generator.disk.git import read_packages_at
from generator.disk.lock import LOCK, MAP, Combination, Lock, parse_lock
from generator.disk.project import Project
from generator.errors import LoomError, nearest
from generator.programs import verdicts
from generator.programs.verdicts import LISTED, EntryVerdict, PackageVersion, list_some, on_all_entries

WHOLE = "package"  # the entry point in the verdict on a package that only one side has
UNKNOWN = "its text there is not committed, and this gen makes another of the sources there: gen build it at both"
HEAD = "verdict", "of", "packages", "how it is known", "fragments"


class PackagePair(NamedTuple):
    """A package before and after.

    Attributes:
        before: path -> bytes, the map included; None if the package did not exist.
        after: path -> bytes.
        unknown: changed files whose text before is not known.
    """

    combination: Combination
    before: Files | None
    after: Files
    unknown: Collection[str] = ()


@dataclass
class Report:
    """The verdicts on one package.

    Attributes:
        files: paths of changed files, without the lock and the map.
        causes: source -> its lines that changed files; '' for files that no map covers.
        findings: one or more verdicts for each entry point.
    """

    name: str
    files: list[str] = field(default_factory=list)
    causes: dict[str, list[int]] = field(default_factory=dict)
    findings: list[EntryVerdict] = field(default_factory=list)

    @property
    def differs(self) -> bool:
        """Returns whether any entry point is not known to be the same program."""
        return any(finding.verdict not in verdicts.SAME for finding in self.findings)

    def as_table(self) -> dict[str, Any]:
        """Returns the report for JSON, which has no infinity."""
        table = {**asdict(self), "differs": self.differs}
        for finding in table["findings"]:
            finding["numbers"] = {k: v if v < float("inf") else "infinite" for k, v in finding["numbers"].items()}
        return table


def against(
    project: Project, revision: str, say: Say, names: Collection[str] = ()
) -> tuple[str, list[Report], list[LoomError]]:
    """Compares the packages that git has at a revision with what the sources make now.

    Args:
        say: receives a line before each long step.
        names: of the packages to compare; all by default.

    Returns:
        The commit, a report for each package in the order of the list, and the errors of those that cannot be woven.
    """
    commit, before = read_packages_at(project.generated, revision)
    listed = {builder.combination.name: builder for builder in create_builders(project)}
    removed = sorted({name for name, files in before.items() if LOCK in files} - listed.keys())
    for name in names:
        if name not in listed and name not in removed:
            raise LoomError(f"there is no package {name!r}, nor was at {revision}", None, nearest(name, listed))
    builders = {name: builder for name, builder in listed.items() if not names or name in names}
    stale = [builder for name, builder in builders.items() if not _is_current(builder, before.get(name, {}))]
    results = list(zip(stale, weave_cached(stale, say), strict=True))
    failed = {builder.combination.name: files for builder, files in results if isinstance(files, LoomError)}
    made = [(builder, files) for builder, files in results if not isinstance(files, LoomError)]
    same = on_all_entries(verdicts.SAME_TEXT)
    reports = {name: Report(name, findings=same) for name in builders if name not in failed}
    reports |= {report.name: report for report in compare_pairs(_pair_versions(made, before, commit, say), say)}
    lost = [EntryVerdict(WHOLE, verdicts.OTHER_INTERFACE, "is no longer made")]
    reports |= {name: Report(name, findings=lost) for name in removed if not names or name in names}
    return commit, list(reports.values()), list({str(error): error for error in failed.values()}.values())


def _read_lock(files: Files) -> Lock | None:
    """Returns the lock among files; None if there is none as gen wrote it."""
    try:
        text = files[LOCK].decode()
        lock = parse_lock(text)
    except (KeyError, ValueError, RecursionError):
        return None
    return lock if lock.text == text else None


def _is_current(builder: PackageBuilder, files: Files) -> bool:
    """Returns whether the lock among files proves that weaving would give these files, or none but the lock."""
    lock = _read_lock(files)
    if lock is None or lock.combination != builder.combination or builder.digests.find_changes(lock):
        return False
    return {path: sha256(data) for path, data in files.items() if path != LOCK} in ({}, lock.outputs)


def _pair_versions(
    made: list[tuple[PackageBuilder, Files]], before: dict[str, Files], commit: str, say: Say
) -> list[PackagePair]:
    """Pairs packages with their files at a commit; those of which git has only the lock are woven there."""
    locks: dict[Combination, Lock] = {}
    earlier: list[PackageBuilder] = []
    for builder, _ in made:
        files = before.get(builder.combination.name, {})
        if len(files) == 1 and (lock := _read_lock(files)):
            locks[builder.combination] = lock
            earlier.append(replace(builder, combination=lock.combination))
    rewoven = dict(zip(locks, weave_cached(earlier, say, commit), strict=True))
    pairs = []
    for builder, after in made:
        combination, unknown = builder.combination, set[str]()
        old = before.get(combination.name)
        if combination in locks:
            outputs = locks[combination].outputs
            sides = [files for files in (after, rewoven[combination]) if not isinstance(files, LoomError)]
            by_hash = {sha256(data): data for files in sides for data in files.values()}
            old = {path: by_hash[digest] for path, digest in outputs.items() if digest in by_hash}
            unknown = outputs.keys() - old.keys() - {MAP}
        pairs.append(PackagePair(combination, old, after, unknown))
    return pairs


def compare_pairs(pairs: Sequence[PackagePair], say: Say) -> list[Report]:
    """Returns the verdicts on packages, several at a time."""
    with ThreadPoolExecutor(max(1, (cpu_count() or 1) // 2)) as pool:
        reports = list(pool.map(lambda pair: _compare_pair(pair, say), pairs))
    prune()
    return reports


def _compare_pair(pair: PackagePair, say: Say) -> Report:
    """Returns the verdicts on one package."""
    combination, before, after, unknown = pair
    name = combination.name
    if before is None:
        return Report(name, findings=[EntryVerdict(WHOLE, verdicts.OTHER_INTERFACE, "is new")])
    paths = sorted((before.keys() | after.keys() | {*unknown}) - {LOCK, MAP})
    files = [path for path in paths if before.get(path) != after.get(path)]
    if unknown:
        return Report(name, files, findings=on_all_entries(verdicts.UNDECIDED, UNKNOWN))
    if not files:
        return Report(name, findings=on_all_entries(verdicts.SAME_TEXT))
    findings = verdicts.judge(PackageVersion(name, before), PackageVersion(name, after), say)
    return Report(name, files, find_cause_lines(combination, before, after, files), findings)


def print_reports(
    project: Project, revision: str, as_json: bool, as_markdown: bool, names: Collection[str] = ()
) -> int:
    """Prints the reports of `against`, and returns the exit code."""
    commit, reports, errors = against(project, revision, lambda line: click.echo(line, err=True), names)
    if as_json:
        packages = [report.as_table() for report in reports]
        write_json({"against": commit, "packages": packages, "errors": [str(error) for error in errors]})
    elif as_markdown:
        errors_above = "".join(f"- error: {error}\n" for error in errors)
        table = tables.format_markdown(tables.Table("", HEAD, _merge_rows(reports)))
        click.echo(f"**{_summarize(commit[:10], reports, errors)}**\n\n{errors_above}\n{table}")
    else:
        click.echo(reports_as_text(commit[:10], reports, errors))
    for error in errors if not as_json else []:
        complain(error)
    return 2 if errors else 1 if any(report.differs for report in reports) else 0


def reports_as_text(before: str, reports: list[Report], errors: Sequence[LoomError] = ()) -> str:
    """Returns the reports for a terminal; `before` names the version that packages are compared with."""
    lines = []
    for verdict, entries, packages, detail, sources in _merge_rows(reports):
        lines += [f"{verdict}: {entries} of {packages}", *(f"  {line}" for line in (detail, sources) if line), ""]
    return "\n".join([*lines, _summarize(before, reports, errors)])


def _merge_rows(reports: list[Report]) -> list[tuple]:
    """Returns each verdict with the same reason once, the gravest first, in the columns of HEAD."""
    by_entry: dict[tuple, list[tuple[str, dict[str, float]]]] = {}
    for report in reports:
        for finding in report.findings:
            key = finding.verdict, finding.entry, finding.detail, list_some(_line_ranges(report.causes), ", ")
            by_entry.setdefault(key, []).append((report.name, finding.numbers))
    merged: dict[tuple, list[str]] = {}
    for (verdict, entry, detail, sources), packages in by_entry.items():
        count = _count(len(packages), f"({list_some([name for name, _ in packages], ', ')})")
        prefix = "up to " if len(packages) > 1 else ""
        parts = dict.fromkeys(part for _, numbers in packages for part in numbers)
        largest = {part: max(numbers.get(part, 0.0) for _, numbers in packages) for part in parts}
        distances = ", ".join(f"{part} {prefix}{value:.2g}" for part, value in largest.items())
        reason = ": ".join(filter(None, (detail, distances)))
        merged.setdefault((verdict, count, reason, sources), []).append(entry)
    return [
        (verdict, "all entry points" if {*entries} == {*verdicts.ENTRIES} else ", ".join(entries), *rest)
        for (verdict, *rest), entries in sorted(merged.items(), key=lambda row: -verdicts.VERDICTS.index(row[0][0]))
    ]


def _summarize(before: str, reports: list[Report], errors: Sequence[LoomError]) -> str:
    differing, changed = (sum(bool(getattr(report, name)) for report in reports) for name in ("differs", "files"))
    same = f"{'none of them' if errors else 'no package'} is another program"
    same = f"{differing} may be another" if differing else same
    same += "; packages that cannot be woven are left out" if errors else ""
    return f"against {before}: {_count(len(reports))}, {changed} with another text; {same}"


def _count(number: int, more: str = "") -> str:
    return f"{number} package{'' if number == 1 else 's'} {more}".strip()


def _line_ranges(causes: dict[str, list[int]]) -> list[str]:
    """Returns each source with the ranges of its lines, such as `model.py:3,7-9`."""
    result = []
    for source, lines in causes.items():
        starts = [line for line in lines if line - 1 not in lines]
        ends = [line for line in lines if line + 1 not in lines]
        ranges = [str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True)]
        more = "..." if len(ranges) > LISTED else ""
        result += [f"{source}:{','.join(ranges[:LISTED])}{more}".rstrip(":")] if source else []
    return result
