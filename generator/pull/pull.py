"""Carries the edits of a package back to its fragments.

An edit goes home if the package that is woven from the changed fragments is the edited one, to the byte. All edits are
tried together first. If that fails, they are tried one after the other, each with those that were accepted before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import combinations

from generator.package.package import Package
from generator.pull.candidates import find_candidates
from generator.pull.edits import Hunk, PackageEdits, Refusal, Replacement
from generator.pull.leave_out import find_left_out
from generator.pull.refusals import explain_refusal
from generator.pull.sources import PackageSources
from generator.pull.trials import Trial, TrialWeaver, Weave
from generator.recipe.library import Library


@dataclass(frozen=True)
class PullResult:
    """The result of a pull.

    Attributes:
        texts: path -> text, of the changed fragments.
        package: woven from them.
        accepted: the hunks that the package has.
        refusals: of the other hunks.
    """

    texts: dict[str, str]
    package: Package
    accepted: list[Hunk]
    refusals: list[Refusal]


@dataclass
class _HunkGroup:
    """Hunks that change the same source lines.

    Attributes:
        candidates: of each hunk.
        failed: its first trial, if that failed.
    """

    hunks: list[Hunk]
    candidates: list[list[list[Replacement]]]
    failed: Trial | None = None

    @property
    def attempts(self) -> int:
        """Returns how many combinations of candidates are tried."""
        return max(map(len, self.candidates))

    def changes(self, attempt: int) -> set[Replacement]:
        """Returns the replacements of an attempt: of each hunk the candidate of that number, or its last one."""
        return {change for each in self.candidates for change in each[min(attempt, len(each) - 1)]}

    def overlaps(self, other: _HunkGroup) -> bool:
        """Returns whether any candidates of the two change the same lines."""
        ours, theirs = ({c for n in range(group.attempts) for c in group.changes(n)} for group in (self, other))
        return any(one.overlaps(two) for one in ours for two in theirs)


def pull(package: Package, edits: PackageEdits, library: Library, weave: Weave) -> PullResult:
    """Finds the changes of fragments that make the edits.

    Args:
        package: as woven now.
        weave: weaves the package from a library; its errors become reasons of refusals.
    """
    woven = PackageSources(package, library.files)

    def search(edits: PackageEdits) -> PullResult:
        return _pull(woven, edits, TrialWeaver(woven, edits, library, weave))

    result = search(edits)
    split = [part for hunk in edits.hunks for part in ([hunk] if hunk in result.accepted else hunk.split())]
    if len(split) > len(edits.hunks):  # perhaps some lines of an edit can go home
        edits = edits._replace(hunks=split)
        result = search(edits)
    held_back: list[Hunk] = []
    refusals: list[Refusal] = []
    while dependent := _find_dependent(woven, edits, result, held_back):
        held_back.extend(dependent)
        for hunk, (other, names) in dependent.items():
            why = f"belongs to the edit at {other.path}:{other.at}, which cannot go home: both change {names}"
            refusals.append(Refusal(hunk.path, hunk.at, why, "Have that one go home first, or both by hand."))
        edits = edits._replace(hunks=[hunk for hunk in edits.hunks if hunk not in dependent])
        result = search(edits)
    refusals = [*result.refusals, *refusals]
    refused = {(hunk.path, hunk.at): hunk for hunk in edits.hunks if hunk not in result.accepted}
    if left_out := find_left_out(woven, edits, refused.values(), library, weave) if refused else None:
        name, remedy = left_out
        reason = f"it leaves out {name}, and no change of a fragment does"
        refusals = [r._replace(reason=reason, remedy=remedy) if (r.path, r.line) in refused else r for r in refusals]
    return replace(result, refusals=refusals)


def _find_dependent(
    woven: PackageSources, edits: PackageEdits, result: PullResult, held_back: list[Hunk]
) -> dict[Hunk, tuple[Hunk, str]]:
    """Finds accepted edits that share a new or removed name with one that stays in the package.

    Args:
        held_back: edits that were found to be dependent before.

    Returns:
        The dependent edit -> the one that stays, and the names.
    """
    staying = [*held_back, *(hunk for hunk in edits.hunks if hunk not in result.accepted)]
    files = {path: woven.package.files[path] for path in woven.package.origins}
    before, after = _words(files.values()), _words(edits.texts.get(path, text) for path, text in files.items())

    def changed_names(hunk: Hunk) -> set[str]:
        rows = woven.lines[hunk.path][hunk.start : hunk.stop] if hunk.path in files else []
        return (_words(hunk.lines) - before) | (_words(rows) - after)

    pairs = ((one, two, changed_names(one) & changed_names(two)) for one in result.accepted for two in staying)
    return {one: (two, ", ".join(sorted(names))) for one, two, names in pairs if names}


def _words(texts: Iterable[str]) -> set[str]:
    """Returns the names in code and the words in its strings, without those of comments."""
    lines = (line.partition("#")[0] for text in texts for line in text.split("\n"))
    return {word for line in lines for word in re.findall(r"[^\W\d]\w*", line)}


def _pull(woven: PackageSources, edits: PackageEdits, weaver: TrialWeaver) -> PullResult:
    """Returns the result for edits that need not go home together."""
    candidates = {hunk: find_candidates(woven, hunk) for hunk in edits.hunks if not woven.is_derived(hunk)}
    groups = _group_overlapping({hunk: each for hunk, each in candidates.items() if each})
    best, accepted_groups = _search(weaver, groups)
    hunks = [hunk for group in accepted_groups for hunk in group.hunks]
    if best.texts:
        best = weaver.format(best, hunks)
    accepted = [hunk for hunk in edits.hunks if hunk in hunks or hunk in best.implied]
    failed = {hunk: group.failed for group in groups for hunk in group.hunks}
    refused = [hunk for hunk in edits.hunks if hunk not in accepted]
    refusals = [explain_refusal(woven, edits, hunk, failed.get(hunk)) for hunk in refused]
    return PullResult(best.texts, best.package or woven.package, accepted, [*edits.refusals, *refusals])


def _group_overlapping(candidates: dict[Hunk, list[list[Replacement]]]) -> list[_HunkGroup]:
    """Groups hunks whose candidates change the same source lines."""
    groups: list[_HunkGroup] = []
    for hunk, each in candidates.items():
        merged = _HunkGroup([hunk], [each])
        for group in [group for group in groups if group.overlaps(merged)]:
            merged = _HunkGroup([*group.hunks, *merged.hunks], [*group.candidates, *merged.candidates])
            groups.remove(group)
        groups.append(merged)
    return groups


def _search(weaver: TrialWeaver, groups: list[_HunkGroup]) -> tuple[Trial, list[_HunkGroup]]:
    """Finds groups that go home together: all of them, or else as many as a greedy search finds."""
    accepted: list[_HunkGroup] = []
    changes: set[Replacement] = set()
    best = weaver.weave({}, [])

    def accept(more: list[_HunkGroup]) -> bool:
        """Returns whether groups go home with the accepted ones, and adds them if they do."""
        nonlocal best
        hunks = [hunk for group in [*accepted, *more] for hunk in group.hunks]
        for attempt in range(max(group.attempts for group in more)):
            choice = changes.union(*(group.changes(attempt) for group in more))
            if any(one.overlaps(two) for one, two in combinations(choice, 2)):
                continue
            trial = weaver.make(choice, hunks)
            if trial.is_exact:
                best = trial
                changes.update(choice)
                accepted.extend(more)
                return True
            for group in more:
                group.failed = group.failed or trial
        return False

    if not groups or accept(groups):
        return best, accepted
    waiting = list(groups)
    for group in groups:
        group.failed = None
    while waiting:
        left = [group for group in waiting if not accept([group])]
        if len(left) == len(waiting):
            break
        waiting = left
    if 1 < len(waiting) < len(groups):
        accept(waiting)  # they may need each other
    return best, accepted
