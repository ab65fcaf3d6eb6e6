"""What the change since a revision means: for each package and entry point a verdict, by program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from generator.code.hunks import hunks
from generator.commands.causes import causes
from generator.commands.changes import plain
from generator.commands.packages import Asked
from generator.commands.woven import Files, Say, Sides, with_texts, woven_now
from generator.disk.cache import cache_key, keep, prune, recall
from generator.disk.git import packages_at
from generator.disk.lock import LOCK, MAP, Combination, Fingerprints, generator_hash
from generator.disk.look import sha256
from generator.disk.project import Project
from generator.errors import LoomError, nearest
from generator.programs.bytecode import same_code
from generator.programs.facts import Version, facts_of, is_program, missing, tracer_key
from generator.programs.host import untraced
from generator.programs.results import run_both
from generator.programs.verdicts import (
    ENTRIES,
    HOST,
    OTHER_INTERFACE,
    SAME_PROGRAM,
    SAME_TEXT,
    UNDECIDED,
    Finding,
    compare,
)

WHOLE = "package"  # the entry point of a package that only one side has
UNKNOWN = "its text there is not committed, and this gen makes another of the sources there: gen build it at both"


@dataclass
class Report:
    """What the change means for one package.

    Attributes:
        change: the same for packages that changed alike, apart from their own names; '' where no text did.
        files: whose text changed; those of the record that gen keeps are none.
        causes: source -> its lines that made files change, '' for what no map covers.
        findings: one or more for each entry point.
    """

    name: str
    change: str = ""
    files: list[str] = field(default_factory=list)
    causes: dict[str, list[int]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def differs(self) -> bool:
        return any(finding.verdict not in (SAME_TEXT, SAME_PROGRAM) for finding in self.findings)


@dataclass
class _Change:
    """A package whose text differs, on its way to a report."""

    report: Report
    before: Version
    after: Version
    programs: list[str]  # files of the program whose bytecode differs
    key: str


def against(
    project: Project,
    revision: str,
    say: Say,
    found: Callable[[list[Report]], None] = lambda _: None,
    names: Collection[str] = (),
) -> tuple[str, list[Report], list[LoomError]]:
    """Compares what weaving gives now with the packages that git has at a revision.

    Args:
        say: is told what goes on.
        found: is given the reports of packages that changed alike, as soon as all of them are known.
        names: of the packages to compare; all by default.

    Returns:
        The commit, a report for each package by its place in the list, and the errors of those that cannot be woven.
    """
    commit, before = packages_at(project.generated, revision)
    listed = [it for it in project.packages() if not names or it.name in names]
    for name in names:
        if name not in [it.name for it in listed] and LOCK not in before.get(name, {}):
            known = [it.name for it in project.packages()]
            raise LoomError(f"there is no package {name!r}, nor was at {revision}", None, nearest(name, known))
    prints = Fingerprints(project.roots)
    asked = [Asked(project, combination, prints, project.generated) for combination in listed]
    pairs: list[tuple[Combination, Files | None, Files]] = []
    errors: list[LoomError] = []
    for combination, after in zip(listed, woven_now(asked, say), strict=True):
        if isinstance(after, LoomError):
            errors += [after] if str(after) not in map(str, errors) else []
        else:
            pairs.append((combination, before.get(combination.name), after))
    reports = compare_sides(with_texts(project, commit, pairs, prints, say), say, found)
    gone = sorted(name for name, files in before.items() if LOCK in files and name not in {it.name for it in listed})
    lost = [Report(name, "gone", findings=[Finding(WHOLE, OTHER_INTERFACE, "is no longer made")]) for name in gone]
    if lost := [report for report in lost if not names or report.name in names]:
        found(lost)
    return commit, reports + lost, errors


def compare_sides(
    sides: Iterable[Sides], say: Say, found: Callable[[list[Report]], None] = lambda _: None
) -> list[Report]:
    """What the change of each package means; `found` as in `against`."""
    generator = generator_hash((".",))  # what judges may be anywhere
    changes = [_change(each, generator) for each in sides]
    left = {change.report.name: change for change in changes}

    def known(change: _Change) -> None:
        """Tells of packages that changed alike once the last of them is known."""
        del left[change.report.name]
        if all(other.report.change != change.report.change for other in left.values()):
            found([other.report for other in changes if other.report.change == change.report.change])

    open_ = [change for change in changes if change.programs]
    for change in changes:
        if not change.programs:
            known(change)
    _trace(open_, say, known)
    prune()
    return [change.report for change in changes]


def _change(each: Sides, generator: str) -> _Change:
    """What text and bytecode say; what they leave open is to be traced."""
    combination, before, after, unknown = each
    name, report = combination.name, Report(combination.name)
    sides = Version("before", name, before or {}), Version("after", name, after)
    change = _Change(report, *sides, [], "")
    if before is None:
        report.change, report.findings = "new", [Finding(WHOLE, OTHER_INTERFACE, "is new")]
        return change
    paths = sorted((before.keys() | after.keys() | {*unknown}) - {LOCK, MAP})
    report.files = [path for path in paths if before.get(path) != after.get(path)]
    if not report.files:
        report.findings = [Finding(entry, SAME_TEXT) for entry in ENTRIES]
        return change
    if {*unknown} - {MAP}:
        report.change, report.findings = "unknown", [Finding(entry, UNDECIDED, UNKNOWN) for entry in ENTRIES]
        return change
    report.change = _change_of_text(report.files, each)
    hashes = [[path, sha256(files.get(path, b""))] for files in (before, after) for path in [*report.files, MAP]]
    change.key = cache_key(hashes, generator, tracer_key(), [sha256(d) for d in sides[1].program.values()])
    if (kept := recall("reports", change.key)) is not None:
        report.causes = kept["causes"]
        report.findings = [Finding(**finding) for finding in kept["findings"]]
        return change
    report.causes = causes(combination, before, after, report.files)
    changed = [path for path in report.files if is_program(path)]
    change.programs = [path for path in changed if not _same_code(path, before, after)]
    if not change.programs:
        verdict, detail = (SAME_PROGRAM, "the same bytecode") if changed else (SAME_TEXT, "of its programs")
        report.findings = [Finding(entry, verdict, detail) for entry in ENTRIES]
        _keep(change)
    return change


def _change_of_text(paths: list[str], each: Sides) -> str:
    """A hash of the lines that differ, without the package's own names."""
    pairs = [(path, [_lines((files or {}).get(path, b"")) for files in (each.before, each.after)]) for path in paths]
    body = [
        line
        for path, (old, new) in pairs
        for hunk in hunks(old, new)
        for line in (path, *(f"-{old[n]}" for n in hunk.before), *(f"+{new[n]}" for n in hunk.after))
    ]
    return sha256(plain(body or paths, each.combination).encode())


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").splitlines()


def _same_code(path: str, before: dict[str, bytes], after: dict[str, bytes]) -> bool:
    if path not in before or path not in after:
        return False
    return same_code(*(files[path].decode("utf-8", "replace") for files in (before, after)))


def _keep(change: _Change) -> None:
    report = change.report
    if any(finding.verdict == UNDECIDED and finding.entry != HOST for finding in report.findings):
        return  # for want of memory, time or a library, perhaps
    keep("reports", change.key, {"causes": report.causes, "findings": [asdict(it) for it in report.findings]})


def _trace(changes: list[_Change], say: Say, known: Callable[[_Change], None]) -> None:
    """Adds the findings that text and bytecode leave open."""
    if changes and (lacking := missing()):
        remedy = "in a clone of Loomax, pip install -e '.[packages,serve]'"
        for change in changes:
            detail = f"text differs, and tracing needs {', '.join(lacking)}: {remedy}"
            change.report.findings = [Finding(entry, UNDECIDED, detail) for entry in ENTRIES]
            known(change)
        return
    if changes:
        say(f"traces {len(changes)} packages, before and after the change")
    facts: dict[tuple[str, str], dict[str, Any]] = {}
    by_name = {change.report.name: change for change in changes}
    for (side, name), said in facts_of([it for change in changes for it in (change.before, change.after)], say):
        facts[side, name] = said
        if ("before", name) in facts and ("after", name) in facts:
            _decide(by_name[name], (facts["before", name], facts["after", name]), say)
            known(by_name[name])


def _decide(change: _Change, pair: tuple[dict[str, Any], dict[str, Any]], say: Say) -> None:
    """Adds the findings of a package whose programs were traced."""
    compared = compare(*pair)
    findings = compared.findings
    if compared.to_run:
        say(f"runs {change.report.name}, before and after the change")
        findings += run_both(change.before, change.after, compared.to_run)
    findings += untraced(change.programs, change.before, change.after, pair)
    order = [*ENTRIES, HOST]
    change.report.findings = sorted(findings, key=lambda finding: order.index(finding.entry))
    _keep(change)


def as_json(commit: str, reports: list[Report], errors: list[LoomError]) -> dict[str, Any]:
    """The reports in the words of the verdicts."""
    packages = [report_table(report) for report in reports]
    return {"against": commit, "packages": packages, "errors": [str(error) for error in errors]}


def report_table(report: Report) -> dict[str, Any]:
    """One report, for JSON."""
    package = {**asdict(report), "differs": report.differs}
    for finding in package["findings"]:
        # JSON has no infinity
        finding["numbers"] = {k: v if v < float("inf") else "infinite" for k, v in finding["numbers"].items()}
    return package
