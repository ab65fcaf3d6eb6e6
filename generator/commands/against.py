"""What the change since a revision means: for each package and entry point a verdict, by program."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from generator.commands.build import Asked
from generator.commands.causes import causes
from generator.disk.cache import cache_key, keep, prune, recall
from generator.disk.lock import LOCK, MAP, Combination, Fingerprints, generator_hash
from generator.disk.look import files_below, sha256
from generator.disk.parallel import in_parallel
from generator.disk.project import Project
from generator.disk.revision import packages_at
from generator.errors import LoomError
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


@dataclass
class Report:
    """What the change means for one package.

    Attributes:
        files: whose text changed; those of the record that gen keeps are none.
        causes: source -> its lines that made files change, '' for what no map covers.
        findings: one or more for each entry point.
    """

    name: str
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


def against(project: Project, revision: str, say: Callable[[str], None]) -> tuple[str, list[Report], list[LoomError]]:
    """Compares what weaving gives now with the packages that git has at a revision.

    Args:
        say: is told what goes on.

    Returns:
        The commit, a report for each package by its place in the list, and the errors of those that cannot be woven.
    """
    commit, before = packages_at(project, revision)
    listed = project.packages()
    prints = Fingerprints(project.roots)
    library = library_key(project, prints)
    asked = [Asked(project, combination, prints, project.generated) for combination in listed]
    known = [recall("woven", cache_key(library, it.combination)) for it in asked]
    if waiting := [it for it, found in zip(asked, known, strict=True) if found is None]:
        say(f"weaves {len(waiting)} packages")
    woven = iter(in_parallel(weave_files, [(it, library) for it in waiting], [True] * len(waiting)))
    sides: list[tuple[Combination, dict[str, bytes] | None, dict[str, bytes]]] = []
    errors: list[LoomError] = []
    for combination, found in zip(listed, known, strict=True):
        found = next(woven) if found is None else found
        if isinstance(found, LoomError):
            errors += [found] if str(found) not in map(str, errors) else []
            continue
        after = {path: text.encode() for path, text in found.items()}
        sides.append((combination, before.get(combination.name), after))
    reports = compare_sides(sides, say)
    gone = sorted(name for name, files in before.items() if LOCK in files and name not in {it.name for it in listed})
    reports += [Report(name, findings=[Finding(WHOLE, OTHER_INTERFACE, "is no longer made")]) for name in gone]
    return commit, reports, errors


def compare_sides(
    sides: Iterable[tuple[Combination, dict[str, bytes] | None, dict[str, bytes]]],
    say: Callable[[str], None],
) -> list[Report]:
    """What the change of each package means: its files before, None where it is new, and after, maps included."""
    generator = generator_hash(module="commands.against")
    changes = [_change(combination, before, after, generator) for combination, before, after in sides]
    _trace([change for change in changes if change.programs], say)
    prune()
    return [change.report for change in changes]


def library_key(project: Project, prints: Fingerprints) -> str:
    """A hash of all that weaving reads."""
    files = {}
    for number, root in enumerate(project.roots):
        for folder in ("fragments", "templates", "targets"):
            for path in files_below(root / folder) if (root / folder).is_dir() else ():
                files[f"{number}/{folder}/{path}"] = sha256((root / folder / path).read_bytes())
    return cache_key(files, prints.generator, prints.tools)


def weave_files(asked: Asked, library: str) -> dict[str, str]:
    """The files of a package, the map included; kept for the next time."""
    files = {path: data.decode() for path, data in asked.woven().items() if path != LOCK}
    keep("woven", cache_key(library, asked.combination), files)
    return files


def _change(
    combination: Combination, before: dict[str, bytes] | None, after: dict[str, bytes], generator: str
) -> _Change:
    """What text and bytecode say; what they leave open is to be traced."""
    name, report = combination.name, Report(combination.name)
    sides = Version("before", name, before or {}), Version("after", name, after)
    change = _Change(report, *sides, [], "")
    if before is None:
        report.findings = [Finding(WHOLE, OTHER_INTERFACE, "is new")]
        return change
    paths = sorted((before.keys() | after.keys()) - {LOCK, MAP})
    report.files = [path for path in paths if before.get(path) != after.get(path)]
    if not report.files:
        report.findings = [Finding(entry, SAME_TEXT) for entry in ENTRIES]
        return change
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


def _same_code(path: str, before: dict[str, bytes], after: dict[str, bytes]) -> bool:
    if path not in before or path not in after:
        return False
    return same_code(*(files[path].decode("utf-8", "replace") for files in (before, after)))


def _keep(change: _Change) -> None:
    report = change.report
    if any(finding.verdict == UNDECIDED and finding.entry != HOST for finding in report.findings):
        return  # for want of memory, time or a library, perhaps
    keep("reports", change.key, {"causes": report.causes, "findings": [asdict(it) for it in report.findings]})


def _trace(changes: list[_Change], say: Callable[[str], None]) -> None:
    """Adds the findings that text and bytecode leave open."""
    if changes and (lacking := missing()):
        remedy = "in a clone of Loomax, pip install -e '.[packages,serve]'"
        for change in changes:
            detail = f"text differs, and tracing needs {', '.join(lacking)}: {remedy}"
            change.report.findings = [Finding(entry, UNDECIDED, detail) for entry in ENTRIES]
        return
    if changes:
        say(f"traces {len(changes)} packages, before and after the change")
    facts = facts_of([version for change in changes for version in (change.before, change.after)], say)
    for change in changes:
        name = change.report.name
        pair = facts["before", name], facts["after", name]
        compared = compare(*pair)
        findings = compared.findings
        if compared.to_run:
            say(f"runs {name}, before and after the change")
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
