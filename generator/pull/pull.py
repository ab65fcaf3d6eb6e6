"""Carries the edits of a package back to its fragments; weaving says which of them came home.

An edit is home when the package that is woven from the changed fragments is the edited one, to the byte. All are tried
together first. Where that fails, they are tried one after the other, each with those that are home already.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import combinations

from generator.package.package import Package
from generator.pull.edited import Edited, Hunk, Refusal, Replacement
from generator.pull.home import candidates
from generator.pull.reasons import refuse
from generator.pull.sources import PackageSources
from generator.pull.trial import Outcome, Trials, Weave
from generator.recipe.library import Library


@dataclass(frozen=True)
class Pulled:
    """The result of a pull.

    Attributes:
        texts: of the fragments that change.
        package: woven from them.
        home: the hunks that it has.
        refusals: of those that it has not.
    """

    texts: dict[str, str]
    package: Package
    home: list[Hunk]
    refusals: list[Refusal]


@dataclass
class _Group:
    """Hunks that change the same source lines, each with its candidates.

    Attributes:
        failed: the first trial of it, where that failed.
    """

    hunks: list[Hunk]
    ways: list[list[list[Replacement]]]
    failed: Outcome | None = None

    @property
    def count(self) -> int:
        return max(map(len, self.ways))

    def changes(self, number: int) -> set[Replacement]:
        """The changes of all its hunks by their candidates of this number, or else their last ones."""
        return {change for ways in self.ways for change in ways[min(number, len(ways) - 1)]}

    def meets(self, other: _Group) -> bool:
        mine, theirs = ({c for n in range(group.count) for c in group.changes(n)} for group in (self, other))
        return any(one.overlaps(two) for one in mine for two in theirs)


def pull(package: Package, edited: Edited, library: Library, weave: Weave) -> Pulled:
    """Finds the changes of fragments that make the edits.

    Args:
        package: as it is woven now.
        weave: weaves the package from a library; its errors are reasons for refusals.
    """
    woven = PackageSources(package, library.files)

    def search(edited: Edited) -> Pulled:
        return _pull(woven, edited, Trials(woven, edited, library, weave))

    found = search(edited)
    split = [part for hunk in edited.hunks for part in ([hunk] if hunk in found.home else hunk.split())]
    if len(split) > len(edited.hunks):  # perhaps some lines of an edit can go home
        edited = edited._replace(hunks=split)
        found = search(edited)
    torn: list[Hunk] = []
    refusals: list[Refusal] = []
    while more := _torn(woven, edited, found, torn):
        torn.extend(more)
        for hunk, (other, names) in more.items():
            why = f"belongs to the edit at {other.path}:{other.at}, which cannot go home: both change {names}"
            refusals.append(Refusal(hunk.path, hunk.at, why, "Have that one go home first, or both by hand."))
        edited = edited._replace(hunks=[hunk for hunk in edited.hunks if hunk not in more])
        found = search(edited)
    return replace(found, refusals=[*found.refusals, *refusals])


def _torn(woven: PackageSources, edited: Edited, found: Pulled, torn: list[Hunk]) -> dict[Hunk, tuple[Hunk, str]]:
    """Finds the edits that go home without one that they belong to, each with that one and the names that tell it.

    Such names are new in the package, or gone from it, and both edits have them.

    Args:
        torn: edits that were found to stay before, for the same reason.
    """
    stay = [*torn, *(hunk for hunk in edited.hunks if hunk not in found.home)]
    files = {path: woven.package.files[path] for path in woven.package.origins}
    before, after = _words(files.values()), _words(edited.texts.get(path, text) for path, text in files.items())

    def telling(hunk: Hunk) -> set[str]:
        rows = woven.lines[hunk.path][hunk.start : hunk.stop] if hunk.path in files else []
        return (_words(hunk.lines) - before) | (_words(rows) - after)

    pairs = ((hunk, other, telling(hunk) & telling(other)) for hunk in found.home for other in stay)
    return {hunk: (other, ", ".join(sorted(both))) for hunk, other, both in pairs if both}


def _words(texts: Iterable[str]) -> set[str]:
    """The names in code, and the words in its strings; not those of comments."""
    lines = (line.partition("#")[0] for text in texts for line in text.split("\n"))
    return {word for line in lines for word in re.findall(r"[^\W\d]\w*", line)}


def _pull(woven: PackageSources, edited: Edited, trials: Trials) -> Pulled:
    ways = {hunk: candidates(woven, hunk) for hunk in edited.hunks if not woven.is_made_by_gen(hunk)}
    groups = _grouped({hunk: found for hunk, found in ways.items() if found})
    best, accepted = _search(trials, groups)
    hunks = [hunk for group in accepted for hunk in group.hunks]
    if best.texts:
        best = trials.format(best, hunks)
    home = [hunk for hunk in edited.hunks if hunk in hunks or hunk in best.came]
    failed = {hunk: group.failed for group in groups for hunk in group.hunks}
    refusals = [refuse(woven, edited, hunk, failed.get(hunk)) for hunk in edited.hunks if hunk not in home]
    return Pulled(best.texts, best.package or woven.package, home, [*edited.refusals, *refusals])


def _grouped(ways: dict[Hunk, list[list[Replacement]]]) -> list[_Group]:
    groups: list[_Group] = []
    for hunk, found in ways.items():
        joined = _Group([hunk], [found])
        for group in [group for group in groups if group.meets(joined)]:
            joined = _Group([*group.hunks, *joined.hunks], [*group.ways, *joined.ways])
            groups.remove(group)
        groups.append(joined)
    return groups


def _search(trials: Trials, groups: list[_Group]) -> tuple[Outcome, list[_Group]]:
    """Finds the largest set of groups that goes home, as far as one after the other finds it."""
    accepted: list[_Group] = []
    changes: set[Replacement] = set()
    best = trials.weave({}, [])

    def attempt(more: list[_Group]) -> bool:
        nonlocal best
        hunks = [hunk for group in [*accepted, *more] for hunk in group.hunks]
        for number in range(max(group.count for group in more)):
            choice = changes.union(*(group.changes(number) for group in more))
            if any(one.overlaps(two) for one, two in combinations(choice, 2)):
                continue
            outcome = trials.make(choice, hunks)
            if outcome.holds:
                best = outcome
                changes.update(choice)
                accepted.extend(more)
                return True
            for group in more:
                group.failed = group.failed or outcome
        return False

    if not groups or attempt(groups):
        return best, accepted
    waiting = list(groups)
    for group in groups:
        group.failed = None
    while waiting:
        left = [group for group in waiting if not attempt([group])]
        if len(left) == len(waiting):
            break
        waiting = left
    if 1 < len(waiting) < len(groups):
        attempt(waiting)  # they may need each other
    return best, accepted
