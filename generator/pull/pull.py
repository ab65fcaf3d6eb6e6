"""Carries the edits of a package back to its fragments; weaving says which of them came home.

An edit is home when the package that is woven from the changed fragments is the edited one, to the byte. All are tried
together first. Where that fails, they are tried one after the other, each with those that are home already.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import zip_longest

from generator.package.package import Package
from generator.pull.edited import Edited, Hunk, Refusal
from generator.pull.home import candidates
from generator.pull.reasons import reason
from generator.pull.sources import Change, Woven
from generator.pull.trial import Outcome, Trials, Weave
from generator.recipe.library import Library


@dataclass(frozen=True)
class Pulled:
    """What came of it.

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
    """Hunks that change the same source lines, each with its candidates."""

    hunks: list[Hunk]
    ways: list[list[list[Change]]]
    last: Outcome | None = None

    def choices(self) -> list[set[Change]]:
        """The changes of all its hunks, for the first candidates, the second ones, and so on."""
        rows = zip_longest(*self.ways)
        filled = [[way or ways[-1] for way, ways in zip(row, self.ways, strict=True)] for row in rows]
        return [{change for changes in row for change in changes} for row in filled]


def pull(
    package: Package, edited: Edited, library: Library, weave: Weave, closed: Callable[[str], str] = lambda path: ""
) -> Pulled:
    """Finds the changes of fragments that make the edits.

    Args:
        package: as it is woven now.
        weave: weaves the package from a library.
        closed: what to do in place of changing this source, '' where it may be changed.
    """
    woven = Woven(package, library.files)
    edited = _without_closed(woven, edited, closed)
    found = _pull(woven, edited, library, weave)
    split = [part for hunk in edited.hunks for part in ([hunk] if hunk in found.home else hunk.lines_alone())]
    if len(split) > len(edited.hunks):  # perhaps some lines of an edit can go home
        edited = edited._replace(hunks=split)
        found = _pull(woven, edited, library, weave)
    refusals: list[Refusal] = []
    apart: list[Hunk] = []
    while torn := _torn(woven, edited, found, apart):
        apart.extend(torn)
        edited = edited._replace(hunks=[hunk for hunk in edited.hunks if hunk not in torn], refusals=found.refusals)
        for hunk, (other, names) in torn.items():
            why = f"belongs to the edit at {other.path}:{other.at}, which cannot go home: both change {names}"
            refusals.append(Refusal(hunk.path, hunk.at, why, "Have that one go home first, or both by hand."))
        stay = {(hunk.path, hunk.at) for hunk in edited.hunks}
        told = [one for one in found.refusals if (one.path, one.line) not in stay]
        found = _pull(woven, edited._replace(refusals=told), library, weave)
    return replace(found, refusals=[*found.refusals, *refusals])


def _without_closed(woven: Woven, edited: Edited, closed: Callable[[str], str]) -> Edited:
    """Refuses the edits that every way home takes to a source which may not be changed."""
    hunks, refusals = [], list(edited.refusals)
    for hunk in edited.hunks:
        ways = [] if made_by_gen(woven, hunk) else candidates(woven, hunk)
        shut = [next((change for change in way if closed(change.path)), None) for way in ways]
        if first := next(filter(None, shut), None) if all(shut) else None:
            why = f"it would go to {first.path}:{first.start + 1}, which is part of gen and not of this project"
            refusals.append(Refusal(hunk.path, hunk.at, why, closed(first.path)))
        else:
            hunks.append(hunk)
    return edited._replace(hunks=hunks, refusals=refusals)


def _torn(woven: Woven, edited: Edited, found: Pulled, apart: list[Hunk]) -> dict[Hunk, tuple[Hunk, str]]:
    """The edits that go home without one that they belong to, each with that one and the names that tell it.

    Such names are new in the package, or gone from it, and both edits have them.

    Args:
        apart: edits that were found to stay before, for the same reason.
    """
    stay = [*apart, *(hunk for hunk in edited.hunks if hunk not in found.home)]
    before = _words(text for path, text in woven.package.files.items() if path in woven.package.origins)
    after = _words(
        edited.texts.get(path, text) for path, text in woven.package.files.items() if path in woven.package.origins
    )

    def telling(hunk: Hunk) -> set[str]:
        rows = woven.lines[hunk.path][hunk.start : hunk.stop] if hunk.path in woven.package.origins else []
        return (_words(hunk.lines) - before) | (_words(rows) - after)

    torn: dict[Hunk, tuple[Hunk, str]] = {}
    for hunk in found.home:
        for other in stay:
            if both := sorted(telling(hunk) & telling(other)):
                torn[hunk] = other, ", ".join(both)
    return torn


def _words(texts: Iterable[str]) -> set[str]:
    """The names in code, and the words in its strings; not those of comments."""
    lines = (line.partition("#")[0] for text in texts for line in text.split("\n"))
    return {word for line in lines for word in re.findall(r"[^\W\d]\w*", line)}


def _pull(woven: Woven, edited: Edited, library: Library, weave: Weave) -> Pulled:
    optional = [hunk for hunk in edited.hunks if made_by_gen(woven, hunk)]
    ways = {hunk: candidates(woven, hunk) for hunk in edited.hunks if hunk not in optional}
    groups = _grouped({hunk: found for hunk, found in ways.items() if found})
    trials = Trials(woven, edited, optional, library, weave)
    home, accepted = _search(trials, groups)
    if home.texts:
        home = trials.tidy(home, [hunk for group in accepted for hunk in group.hunks])
    done = {hunk for group in accepted for hunk in group.hunks} | home.came
    outcomes = {hunk: group.last for group in groups for hunk in group.hunks}
    refusals = [reason(woven, edited, hunk, outcomes.get(hunk)) for hunk in edited.hunks if hunk not in done]
    return Pulled(
        home.texts,
        home.package or woven.package,
        [hunk for hunk in edited.hunks if hunk in done],
        [*edited.refusals, *refusals],
    )


def made_by_gen(woven: Woven, hunk: Hunk) -> bool:
    """Whether no one line of a fragment makes these lines: they follow from others."""
    if hunk.path not in woven.package.origins or hunk.path.endswith("__init__.py"):
        return True
    head = woven.head(hunk.path)
    imports = all(not line.strip() or line.startswith(("import ", "from ", "    ", ")", "#")) for line in hunk.lines)
    in_head = hunk.stop <= head or (hunk.start == hunk.stop == head)
    documented = any(woven.origins(hunk.path, row) for row in range(hunk.start, hunk.stop))
    import_rows = woven.first_import(hunk.path) <= hunk.start
    return in_head and ((imports and import_rows) or not documented)


def _grouped(ways: dict[Hunk, list[list[Change]]]) -> list[_Group]:
    groups: list[_Group] = []
    for hunk, found in ways.items():
        mine = {change for changes in found for change in changes}
        joined = _Group([hunk], [found])
        for group in list(groups):
            if any(a.overlaps(b) for w in group.ways for changes in w for a in changes for b in mine):
                joined = _Group([*group.hunks, *joined.hunks], [*group.ways, *joined.ways])
                groups.remove(group)
        groups.append(joined)
    return groups


def _search(trials: Trials, groups: list[_Group]) -> tuple[Outcome, list[_Group]]:
    """The largest set of groups that was found to go home."""
    accepted: list[_Group] = []
    changes: set[Change] = set()
    best = trials.weave({}, [])
    if not groups:
        return best, accepted

    def attempt(more: list[_Group]) -> bool:
        nonlocal best
        hunks = [hunk for group in [*accepted, *more] for hunk in group.hunks]
        choices = [set().union(*row) for row in zip(*_even([group.choices() for group in more]), strict=True)]
        for choice in choices:
            if _clash(choice | changes):
                continue
            outcome = trials.make(changes | choice, hunks)
            if outcome.holds:
                best = outcome
                changes.update(choice)
                accepted.extend(more)
                return True
            for group in more:
                group.last = group.last or outcome
        return False

    if attempt(groups):
        return best, accepted
    waiting = list(groups)
    for group in groups:
        group.last = None
    while waiting:
        left = [group for group in waiting if not attempt([group])]
        if len(left) in (0, len(waiting)):
            break
        waiting = left
    if 1 < len(waiting := [group for group in waiting if group not in accepted]) < len(groups):
        attempt(waiting)  # they may need each other
    return best, accepted


def _even(rows: list[list[set[Change]]]) -> list[list[set[Change]]]:
    """All as long as the longest, by their last candidates."""
    most = max(map(len, rows))
    return [row + row[-1:] * (most - len(row)) for row in rows]


def _clash(changes: set[Change]) -> bool:
    listed = list(changes)
    return any(one.overlaps(two) for number, one in enumerate(listed) for two in listed[number + 1 :])
