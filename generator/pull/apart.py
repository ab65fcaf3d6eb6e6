"""Edits of one package as a fragment that its architecture alone selects: a splice for each join point.

Where a splice would stand is not computed: the splices that may make an edit are woven, the likeliest first, until one
gives the package as it was edited.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from generator.code.ruff import run_ruff
from generator.code.traced import Traced
from generator.package.package import Package
from generator.pull.edited import Edited, Hunk, apply_replacements
from generator.pull.joins import Join, joins_around, peers_of
from generator.pull.names import completed, names_of
from generator.pull.sources import PackageSources, indent, shifted
from generator.pull.trial import Outcome, Trials, Weave
from generator.recipe.library import Library
from generator.recipe.toml import add_to_list

_HEAD = re.compile(r"(#.*\n)*")  # the comments at the top of a file, in which gen names its fragments
_WORDS = {word: f"from generator.language import {word}" for word in ("proceed", "splice")}


class NewFragment(NamedTuple):
    """The fragment to write.

    Attributes:
        path: `fragments/FOLDER/NAME.py`.
        title: the first line of its docstring.
        table: of the architecture's file, which names it in its `fragments`.
    """

    path: str
    title: str
    table: tuple[str, ...]


@dataclass
class FoundFragment:
    """The fragment that was found.

    Attributes:
        texts: of it and of the architecture's file; none where it has no edit.
        made: the hunks that it makes, and those that gen makes because of them.
        reasons: why it does not make the others that were asked for.
    """

    texts: dict[str, str] = field(default_factory=dict)
    made: list[Hunk] = field(default_factory=list)
    reasons: dict[Hunk, str] = field(default_factory=dict)


class _Graft(NamedTuple):
    """A splice that may make hunks: its statements, and the word and the fragments of its order."""

    join: Join
    lines: list[str]
    hunks: list[Hunk]
    order: str = ""

    @property
    def text(self) -> str:
        body = "\n".join(_dedented(self.lines))
        for keyword, expression in self.join.named.items():
            body = re.sub(rf"(?<![\w.]){re.escape(expression)}(?!\w)", keyword, body)
        names = names_of(body) or set()
        asked = [name for name in ("self", *self.join.shown, *self.join.named) if name in names]
        body = "\n".join(shifted(body.split("\n"), 4)).rstrip()
        return f'@splice("{self.join.name}"{self.order})\ndef _({", ".join(asked)}):\n{body}\n'


class SpliceSearch:
    """Looks for the splices that make edits.

    Args:
        package: as it is woven now, from the library.
        weave: weaves the package from a library.
    """

    def __init__(self, package: Package, edited: Edited, library: Library, weave: Weave, own: NewFragment):
        self._edited, self._library, self._own = edited, library, own
        self._woven = PackageSources(package, library.files)
        self._trials = Trials(self._woven, edited, library, lambda changed: _with_heads(weave(changed), package.files))

    def find(self, wanted: list[Hunk]) -> FoundFragment:
        """Finds a fragment with as many of these hunks as can be."""
        found, grafts, best = FoundFragment(), list[_Graft](), None
        for hunk in wanted:
            if not any(hunk in graft.hunks for graft in grafts):
                more, outcome, why = self._add(grafts, hunk, wanted)
                if outcome:
                    grafts, best = more, outcome
                else:
                    found.reasons[hunk] = why
        if best:
            made = {hunk for graft in grafts for hunk in graft.hunks} | best.came
            found.texts, found.made = best.texts, [hunk for hunk in self._edited.hunks if hunk in made]
            found.reasons = {hunk: why for hunk, why in found.reasons.items() if hunk not in made}
        return found

    def _add(self, grafts: list[_Graft], hunk: Hunk, wanted: list[Hunk]) -> tuple[list[_Graft], Outcome | None, str]:
        """Adds a splice that makes a hunk; or says why there is none."""
        if hunk in self._trials.optional:
            return grafts, None, "gen or a template makes this, and no line of a fragment"
        if names_of(self._edited.texts[hunk.path]) is None:
            return grafts, None, "the file is not valid Python"
        joins, why = joins_around(self._woven, hunk), ""
        tried = sorted(joins, key=lambda join: join.is_block)  # what adds statements, then what replaces some
        for graft in (graft for join in tried for graft in self._ways(join, hunk, wanted)):
            more = [*(other for other in grafts if not set(other.hunks) & set(graft.hunks)), graft]
            outcome = self._trials.weave(self._texts(more), [one for other in more for one in other.hunks])
            if outcome.holds:
                return more, outcome, ""
            said = f"line {outcome.line} of {outcome.path} would be {outcome.made!r}"
            said = f"it would not weave: {outcome.error.message}" if outcome.error else said
            why = why or f"as a splice at {graft.join.name}, which shows {graft.join.shows}, {said}"
        if not why and joins:
            why = f"it stands at no join point; the nearest is {joins[0].name}, which shows {joins[0].shows}"
        return grafts, None, why or "it stands at no join point"

    def _ways(self, join: Join, hunk: Hunk, wanted: list[Hunk]) -> Iterator[_Graft]:
        """Gives splices that may make a hunk at a point, in each order with those that rebind the same names."""
        graft = (_within if join.is_block else _beside)(self._woven, join, hunk, wanted)
        if graft is None:
            return
        names = names_of("\n".join(_dedented(graft.lines))) or set()
        fragments = [path for path in self._woven.package.inputs if path.startswith("fragments/")]
        peers = [peer for path in fragments for peer in peers_of(path, self._library.files[path])]
        rivals = " ".join(peer.fragment for peer in peers if peer.point == join.name and peer.rebound & names)
        for word in ("after", "before") if rivals else ():
            yield graft._replace(order=f', {word}="{rivals}"')
        if not rivals:
            yield graft

    def _texts(self, grafts: list[_Graft]) -> dict[str, str]:
        """The fragment, as one would write it by hand, and the architecture's file that selects it."""
        splices = [graft.text for graft in sorted(grafts, key=lambda graft: graft.hunks[0][:2])]
        bare = "\n\n".join([f'"""{self._own.title}"""\n', *splices])
        (text,) = run_ruff([Traced.copy(completed("", bare, self._trials.names | _WORDS), "")])
        file = f"templates/architectures/{self._woven.package.architecture}.toml"
        name = self._own.path.removeprefix("fragments/").removesuffix(".py")
        selecting = add_to_list(self._library.files[file], file, self._own.table, "fragments", name)
        return {self._own.path: text, file: selecting}


def _beside(woven: PackageSources, join: Join, hunk: Hunk, wanted: list[Hunk]) -> _Graft | None:
    """The statements that a hunk adds at a point."""
    old, new = woven.lines[hunk.path][hunk.start : hunk.stop], list(hunk.lines)
    if old and (name := _returned(woven, hunk.path, hunk.stop - 1)):
        old, new = _named(old, name), _named(new, name)
    same = 0
    while same < min(len(old), len(new)) and old[same] == new[same]:
        same += 1
    added = new[same : len(new) - len(old) + same]
    if [*new[:same], *new[same + len(added) :]] != old or not _is_python(added):
        return None
    return _Graft(join, added, [hunk])


def _within(woven: PackageSources, join: Join, hunk: Hunk, wanted: list[Hunk]) -> _Graft | None:
    """The host's statements of a block with hunks made: `proceed()` where they stay together."""
    path = hunk.path
    lines = {(join.path, line) for line in join.lines}
    rows = range(len(woven.package.origins[path]))
    own = [row for row in rows if lines & {(origin.path, origin.line) for origin in woven.origins(path, row)}]
    if not own or own != list(range(own[0], own[-1] + 1)):  # it is woven in several places, or others stand in it
        return None
    start, stop = own[0], own[-1] + 1
    hunks = [one for one in wanted if one.path == path and start <= one.start and one.stop <= stop]
    moved = [one._replace(start=one.start - start, stop=one.stop - start) for one in hunks]
    old = woven.lines[path][start:stop]
    new = apply_replacements("\n".join(old), moved).split("\n")
    if name := _returned(woven, path, stop - 1):
        old, new = ([line for line in _named(lines, name) if line.strip() != f"return {name}"] for lines in (old, new))
    for at in range(len(new) - len(old) + 1):
        by = indent(new[at]) - indent(old[0])
        if tuple(new[at : at + len(old)]) == shifted(old, by):
            new = [*new[:at], f"{' ' * indent(new[at])}proceed()", *new[at + len(old) :]]
            break
    return _Graft(join, new, hunks) if hunk in hunks and _is_python(new) else None


def _returned(woven: PackageSources, path: str, row: int) -> str:
    """The name of a value that a fragment binds and then returns, where weaving made one `return` of the two."""
    if not woven.lines[path][row].lstrip().startswith("return "):
        return ""
    found = (re.match(r"\s*(\w+) = ", woven.text_at(origin)) for origin in woven.origins(path, row))
    return next((match[1] for match in found if match), "")


def _named(lines: list[str], name: str) -> list[str]:
    """Binds the value that lines return to a name first."""
    for row in range(len(lines) - 1, -1, -1):
        space, word, value = lines[row].partition("return ")
        if word and not space.strip() and value != name:
            return [*lines[:row], f"{space}{name} = {value}", *lines[row + 1 :], f"{space}return {name}"]
    return lines


def _dedented(lines: list[str]) -> tuple[str, ...]:
    return shifted(lines, -min((indent(line) for line in lines if line.strip()), default=0))


def _is_python(lines: list[str]) -> bool:
    """Tells whether lines are statements that a function may have."""
    try:
        return bool(ast.parse("\n".join(["async def _():", *shifted(_dedented(lines), 1)])).body)
    except (SyntaxError, ValueError):
        return False


def without_head(text: str) -> str:
    """Takes off the comments at the top of a file."""
    return _HEAD.sub("", text, count=1)


def _with_heads(package: Package, files: dict[str, str]) -> Package:
    """Gives the files of a package the comments at the top that other files have, as gen writes those by itself."""
    same = {}
    for path in package.origins.keys() & files.keys():
        head = files[path].removesuffix(without_head(files[path]))
        same[path] = head + without_head(package.files[path])
    return replace(package, files={**package.files, **same})
