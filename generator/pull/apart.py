"""Edits of one package as a fragment that its architecture alone selects; weaving says which of them it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from generator.errors import short
from generator.package.package import Package
from generator.pull.edited import Edited, Hunk
from generator.pull.graft import Graft, grafts, peers_of
from generator.pull.heads import with_heads
from generator.pull.joins import Marked, find_joins, marking, read_marks
from generator.pull.names import imports_of, names_of
from generator.pull.pull import made_by_gen
from generator.pull.sources import Woven
from generator.pull.trial import Outcome, Trials, Weave
from generator.pull.written import Names, Unfit, fragment_text, locals_at, splice_of
from generator.recipe.library import Library
from generator.recipe.recipe import select
from generator.recipe.tomledit import with_name
from generator.thread.thread import threaded_names

Chosen = list[tuple[Graft, tuple[str, str]]]  # each with its names for after= and before=


class Own(NamedTuple):
    """The fragment to write.

    Attributes:
        path: `fragments/FOLDER/NAME.py`.
        title: the first line of its docstring.
        table: of the architecture's file, which names it in its `fragments`.
        heirs: architectures without a package whose base is this one, and that would get it too.
    """

    path: str
    title: str
    table: tuple[str, ...] = ()
    heirs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.path.removeprefix("fragments/").removesuffix(".py")

    def texts(self, architecture: str, library: Library, text: str) -> dict[str, str]:
        """The fragment and the file of an architecture that selects it."""
        file = f"templates/architectures/{architecture}.toml"
        return {self.path: text, file: with_name(library.files[file], file, self.table, "fragments", self.name)}


@dataclass
class Apart:
    """What came of it.

    Attributes:
        texts: of the fragment and of the architecture's file; none where it has no edit.
        taken: the hunks that it makes, and those that gen makes because of them.
        hosts: of the hunks that it makes, the fragment that has the point.
        reasons: of the others that were asked for.
    """

    texts: dict[str, str] = field(default_factory=dict)
    taken: list[Hunk] = field(default_factory=list)
    hosts: dict[Hunk, str] = field(default_factory=dict)
    reasons: dict[Hunk, str] = field(default_factory=dict)


class Search:
    """Looks for the splices that make edits.

    Args:
        package: as it is woven now, from the library.
        weave: weaves the package from a library.
    """

    def __init__(self, package: Package, edited: Edited, library: Library, weave: Weave, own: Own):
        self._package, self._edited, self._library, self._weave, self._own = package, edited, library, weave, own
        self._woven = Woven(package, library.files)
        optional = [hunk for hunk in edited.hunks if made_by_gen(self._woven, hunk)]
        self._trials = Trials(
            self._woven, edited, optional, library, lambda changed: with_heads(weave(changed), package.files)
        )
        self._fragments = select(package.architecture, package.target, library, parts=package.parts).fragments
        self._peers = peers_of(self._fragments)

    def find(self, wanted: Iterable[Hunk]) -> Apart:
        """A fragment with as many of these hunks as can be."""
        found, chosen, best = Apart(), list[tuple[Graft, tuple[str, str]]](), None
        for hunk in wanted:
            if hunk in self._trials.optional:
                continue
            if hunk.path not in self._package.origins:
                found.reasons[hunk] = "no fragment makes this file"
                continue
            if names_of(self._edited.texts[hunk.path]) is None:
                found.reasons[hunk] = "the file is not valid Python"
                continue
            chosen, outcome, why = self._with(chosen, hunk)
            if why:
                found.reasons[hunk] = why
            else:
                best = outcome
        if best:
            found.texts = best.texts
            found.hosts = {hunk: graft.join.host for graft, _ in chosen for hunk in graft.hunks}
            found.taken = [hunk for hunk in self._edited.hunks if hunk in found.hosts or hunk in best.came]
        return found

    def _with(self, chosen: Chosen, hunk: Hunk) -> tuple[Chosen, Outcome | None, str]:
        """What makes a hunk more; or the same, and why not."""
        why = ""
        for graft in self._ways(chosen, hunk):
            others = [(other, order) for other, order in chosen if not set(other.hunks) <= set(graft.hunks)]
            for order in graft.orders():
                more = [*others, (graft, order)]
                try:
                    text = self._text(more)
                except Unfit as error:
                    why = why or str(error)
                    break
                texts = self._own.texts(self._package.architecture, self._library, text)
                outcome = self._trials.weave(texts, [one for other, _ in more for one in other.hunks])
                if outcome.holds:
                    return more, outcome, ""
                why = why or _failed(graft, outcome)
        return chosen, None, why or self._no_way(hunk)

    def _ways(self, chosen: Chosen, hunk: Hunk) -> Iterator[Graft]:
        """Splices for a hunk alone, or for it and those that are chosen in the same block."""
        blocks = [graft for graft, _ in chosen if graft.join.is_block and graft.hunks[0].path == hunk.path]
        marked, lines = self._marked(hunk.path), self._woven.lines[hunk.path]
        for graft in grafts(marked, lines, [hunk], self._peers):
            joined = next((other for other in blocks if other.join == graft.join), None)
            both = grafts(marked, lines, [*joined.hunks, hunk], self._peers) if joined else [graft]
            yield from (one for one in both if one.join == graft.join)

    @cached_property
    def _marked(self) -> Callable[[str], Marked]:
        joins = find_joins(self._fragments, self._library.files)
        last = self._own._replace(table=("targets", self._package.target))  # below all that is selected
        texts = last.texts(self._package.architecture, self._library, marking(joins.values()))
        return read_marks(self._package, self._weave(self._library.with_texts(texts)), joins)

    @cached_property
    def _threaded(self) -> frozenset[str]:
        return threaded_names(
            [definition for fragment in self._fragments for definition in fragment.definitions],
            [splice for fragment in self._fragments for splice in fragment.splices],
            [provider for fragment in self._fragments for provider in fragment.providers],
        )

    def _text(self, chosen: Chosen) -> str:
        parts = []
        for graft, order in sorted(chosen, key=lambda pair: pair[0].hunks[0][:2]):
            hunk = graft.hunks[0]
            before = self._package.files[hunk.path]
            known = imports_of([self._edited.texts.get(hunk.path, before), before])
            local, has_self = locals_at(before, hunk.start + (hunk.start < hunk.stop))
            parts.append(splice_of(graft, Names(known, self._threaded, local, has_self), order))
        return fragment_text(self._own.title, parts)

    def _no_way(self, hunk: Hunk) -> str:
        """Why no splice can be tried."""
        marked = self._marked(hunk.path)
        row = marked.row(hunk.start)
        sources = {source for found in marked.sources[row : row + hunk.stop - hunk.start] for source in found}
        for name in (place.join.name for place in marked.places if not place.join.is_block):
            for peer in self._peers.get(name, []):
                if any(path == peer.path and line in peer.lines for path, line in sources):
                    return f"{peer.fragment} has it at the point {name}, which holds no statements to replace"
        near = min(marked.places, key=lambda place: max(place.start - row, row - place.stop), default=None)
        return "it stands at no join point" + (f"; the nearest is {near.join.name}" if near else "")


def _failed(graft: Graft, outcome: Outcome) -> str:
    at = f"as a splice at {graft.join.name}"
    if outcome.error:
        return f"{at} it would not weave: {outcome.error.message}"
    made = outcome.package.files.get(outcome.path, "").split("\n") if outcome.package else []
    line = made[outcome.line - 1].strip() if 0 < outcome.line <= len(made) else ""
    return f"{at}, line {outcome.line} of {outcome.path} would be {short(line)!r}"
