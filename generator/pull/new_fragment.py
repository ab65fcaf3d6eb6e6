"""Writes edits of one package as a fragment that its architecture alone selects: a splice for each join point.

The place of a splice is not computed: candidates are woven, the likeliest first, until one gives the edited package.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from generator.code.bindings import bound_names
from generator.code.black import run_black
from generator.code.concrete import indent
from generator.code.edits import Edits
from generator.code.traced import Origin, Traced
from generator.code.tree import TracedTree, walk
from generator.package.package import Package
from generator.pull.edits import Hunk, PackageEdits, apply_replacements
from generator.pull.imports import complete_imports, names_in_text
from generator.pull.join_points import join_points_near, lines_of
from generator.pull.sources import PackageSources
from generator.pull.statements import bind_returned, parse_rows, with_proceed, without_return
from generator.pull.trials import Trial, TrialWeaver, Weave
from generator.recipe.library import Library
from generator.recipe.toml_edits import add_to_list
from generator.weave.points import Point

_HEADER = re.compile(r"(#.*\n)*")  # the comments at the top of a file, which name its fragments
_MARKERS = {word: f"from generator.language import {word}" for word in ("proceed", "splice")}


class NewFragment(NamedTuple):
    """A fragment to write.

    Attributes:
        path: `fragments/FOLDER/NAME.py`.
        title: the first line of its docstring.
        table: of the architecture's file, which lists it under `fragments`.
    """

    path: str
    title: str
    table: tuple[str, ...]


class SearchResult(NamedTuple):
    """The splices that a search found.

    Attributes:
        texts: path -> text, of the fragment and of the architecture's file; empty if no edit is possible.
        accepted: the hunks that the fragment makes, and those that gen derives from them.
        reasons: hunk -> why no splice makes it.
    """

    texts: dict[str, str]
    accepted: list[Hunk]
    reasons: dict[Hunk, str]


class _Candidate(NamedTuple):
    """A splice that may make hunks: its statements, and its `before` or `after`."""

    point: Point
    statements: str
    hunks: list[Hunk]
    order: str = ""

    @property
    def text(self) -> str:
        body = _with_keywords(self.statements, self.point.named)
        names = names_in_text(body.text) or set()
        parameters = [name for name in ("self", *self.point.shown, *self.point.named) if name in names]
        head = f'@splice("{self.point.name}"{self.order})\ndef _({", ".join(parameters)}):'
        return f"{head}\n{indent(body, 4).text.rstrip()}\n"


def _with_keywords(body: str, named: dict[str, str]) -> Traced:
    """Returns statements with the keywords of a point in place of the expressions that these stand for."""
    edits = Edits(TracedTree(Traced.insert(body, Origin("", 1))))
    keywords = {ast.unparse(ast.parse(expression.strip(), mode="eval")): word for word, expression in named.items()}
    for node in walk(edits.source.module) if keywords else ():
        if isinstance(node, ast.expr) and (keyword := keywords.get(ast.unparse(node))):
            edits.replace(node, keyword)
    return edits.made()


class SpliceSearch:
    """Searches for splices that make edits.

    Args:
        package: as woven now, from the library.
        weave: weaves the package from a library.
        fragment: the one to write.
    """

    def __init__(self, package: Package, edits: PackageEdits, library: Library, weave: Weave, fragment: NewFragment):
        self._edits, self._library, self._fragment = edits, library, fragment
        self._woven = PackageSources(package, library.files)
        self._weaver = TrialWeaver(
            self._woven, edits, library, lambda changed: _with_headers(weave(changed), package.files)
        )

    def find(self, hunks: list[Hunk]) -> SearchResult:
        """Finds splices that make as many of these hunks as possible."""
        chosen, best, reasons = list[_Candidate](), None, dict[Hunk, str]()
        for hunk in hunks:
            if not any(hunk in candidate.hunks for candidate in chosen):
                extended, trial, reason = self._add(chosen, hunk, hunks)
                if trial:
                    chosen, best = extended, trial
                else:
                    reasons[hunk] = reason
        if best is None:
            return SearchResult({}, [], reasons)
        accepted = {hunk for candidate in chosen for hunk in candidate.hunks} | best.implied
        refused = {hunk: reason for hunk, reason in reasons.items() if hunk not in accepted}
        return SearchResult(best.texts, [hunk for hunk in self._edits.hunks if hunk in accepted], refused)

    def _add(
        self, chosen: list[_Candidate], hunk: Hunk, hunks: list[Hunk]
    ) -> tuple[list[_Candidate], Trial | None, str]:
        """Returns the splices with one that makes a hunk, and their trial; or None, and the reason."""
        if hunk in self._weaver.derived:
            return chosen, None, "gen or a template makes this, and no line of a fragment"
        if names_in_text(self._edits.texts[hunk.path]) is None:
            return chosen, None, "the file is not valid Python"
        points, reason = join_points_near(self._woven, hunk), ""
        ordered = sorted(points, key=lambda point: point.is_block)  # statements that are added, then those replaced
        for candidate in (one for point in ordered for one in self._candidates(point, hunk, hunks)):
            extended = [*(other for other in chosen if not set(other.hunks) & set(candidate.hunks)), candidate]
            trial = self._weaver.weave(self._texts(extended), [one for other in extended for one in other.hunks])
            if trial.is_exact:
                return extended, trial, ""
            result = f"line {trial.line} of {trial.path} would be {trial.unexpected_line!r}"
            result = f"it would not weave: {trial.error.message}" if trial.error else result
            point = candidate.point
            reason = reason or f"as a splice at {point.name}, which shows {point.shows}, {result}"
        if not reason and points:
            reason = f"it is at no join point; the nearest is {points[0].name}, which shows {points[0].shows}"
        return chosen, None, reason or "it is at no join point"

    def _candidates(self, point: Point, hunk: Hunk, hunks: list[Hunk]) -> Iterator[_Candidate]:
        """Yields splices at a point that may make a hunk: before and after the others that rebind the same names."""
        candidate = (_replace_block if point.is_block else _add_statements)(self._woven, point, hunk, hunks)
        if candidate is None:
            return
        names = names_in_text(candidate.statements) or set()
        paths = [path for path in self._woven.package.inputs if path.startswith("fragments/")]
        fragments = [self._library.fragment(path.removeprefix("fragments/").removesuffix(".py")) for path in paths]
        rivals = " ".join(
            fragment.short
            for fragment in fragments
            for splice in fragment.splices
            if splice.point == point.name and names & {*splice.reads} & bound_names(TracedTree(splice.body).module)
        )
        for word in ("after", "before") if rivals else ():
            yield candidate._replace(order=f', {word}="{rivals}"')
        if not rivals:
            yield candidate

    def _texts(self, candidates: list[_Candidate]) -> dict[str, str]:
        """Returns the texts of the fragment, formatted, and of the architecture's file that selects it."""
        splices = [candidate.text for candidate in sorted(candidates, key=lambda one: one.hunks[0][:2])]
        bare = "\n\n".join([f'"""{self._fragment.title}"""\n', *splices])
        complete = complete_imports("", bare, self._weaver.imports | _MARKERS)
        (text,) = run_black([Traced.copy(complete, "")])
        file = f"templates/architectures/{self._woven.package.architecture}.toml"
        name = self._fragment.path.removeprefix("fragments/").removesuffix(".py")
        selecting = add_to_list(self._library.files[file], file, self._fragment.table, "fragments", name)
        return {self._fragment.path: text, file: selecting}


def _add_statements(woven: PackageSources, point: Point, hunk: Hunk, hunks: list[Hunk]) -> _Candidate | None:
    """Returns a splice of the statements that a hunk adds at a point; None if it does anything else."""
    old, new = woven.lines[hunk.path][hunk.start : hunk.stop], list(hunk.lines)
    if old and (name := _returned_name(woven, hunk.path, hunk.stop - 1)):
        returned = parse_rows(old), parse_rows(new)
        if not all(returned):
            return None
        old, new = (bind_returned(module, name).code.split("\n") for module in returned if module)
    same = 0
    while same < min(len(old), len(new)) and old[same] == new[same]:
        same += 1
    added = new[same : len(new) - len(old) + same]
    statements = parse_rows(added)
    if [*new[:same], *new[same + len(added) :]] != old or statements is None:
        return None
    return _Candidate(point, statements.code, [hunk])


def _replace_block(woven: PackageSources, point: Point, hunk: Hunk, hunks: list[Hunk]) -> _Candidate | None:
    """Returns a splice that replaces a block of the host; it has `proceed()` if the statements stay together."""
    path = hunk.path
    source = point.source.origin(point.statement).path
    lines = {(source, line) for line in lines_of(point)}
    rows = range(len(woven.package.origins[path]))
    block = [row for row in rows if lines & {(origin.path, origin.line) for origin in woven.origins(path, row)}]
    if not block or block != list(range(block[0], block[-1] + 1)):  # woven several times, or with splices inside
        return None
    start, stop = block[0], block[-1] + 1
    inside = [one for one in hunks if one.path == path and start <= one.start and one.stop <= stop]
    before = woven.lines[path][start:stop]
    relative = [one._replace(start=one.start - start, stop=one.stop - start) for one in inside]
    old, new = parse_rows(before), parse_rows(apply_replacements("\n".join(before), relative).split("\n"))
    if hunk not in inside or old is None or new is None:
        return None
    if name := _returned_name(woven, path, stop - 1):
        old, new = (without_return(bind_returned(module, name), name) for module in (old, new))
    return _Candidate(point, with_proceed(new, old).code, inside)


def _returned_name(woven: PackageSources, path: str, row: int) -> str:
    """Returns the name that a fragment binds and returns, if the weaver joined the two statements; else ''."""
    if not woven.lines[path][row].lstrip().startswith("return "):
        return ""
    matches = (re.match(r"\s*(\w+) = ", woven.text_at(origin)) for origin in woven.origins(path, row))
    return next((match[1] for match in matches if match), "")


def without_header(text: str) -> str:
    """Removes the comments at the top of a file."""
    return _HEADER.sub("", text, count=1)


def _with_headers(package: Package, files: dict[str, str]) -> Package:
    """Returns a package with the comments at the top of other files, which gen derives from the recipe."""
    changed = {}
    for path in package.origins.keys() & files.keys():
        header = files[path].removesuffix(without_header(files[path]))
        changed[path] = header + without_header(package.files[path])
    return replace(package, files={**package.files, **changed})
