"""Weaves a package again with changed fragments, in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from generator.code.ruff import run_ruff
from generator.code.traced import Traced
from generator.errors import LoomError, short
from generator.package.package import Package
from generator.pull.edited import Edited, Hunk, Replacement, apply_replacements, fits
from generator.pull.names import completed, imports_of
from generator.pull.sources import PackageSources
from generator.recipe.library import Library

Weave = Callable[[Library], Package]


class Outcome(NamedTuple):
    """The package that some changes make.

    Attributes:
        texts: of the sources that they change.
        package: woven from them, None where that fails.
        error: why.
        came: hunks that gen makes by itself, and that came with the others.
        path, line: where the package is not what it should be, from 1; '', 0 where it is.
    """

    texts: dict[str, str]
    package: Package | None
    error: LoomError | None
    came: frozenset[Hunk]
    path: str
    line: int

    @property
    def holds(self) -> bool:
        return self.package is not None and not self.path

    @property
    def lines(self) -> list[str]:
        """The lines of the file that is not what it should be."""
        return self.package.files.get(self.path, "").split("\n") if self.package else []

    @property
    def made(self) -> str:
        """The line there."""
        return short(self.lines[self.line - 1].strip()) if 0 < self.line <= len(self.lines) else ""


class Trials:
    """Tries changes of fragments.

    Attributes:
        optional: hunks that no change makes alone: imports, headers, what templates say of fragments.
        names: the imports that fragments need for names of the package.
    """

    def __init__(self, woven: PackageSources, edited: Edited, library: Library, weave: Weave):
        self._woven, self._library, self._weave = woven, library, weave
        self.optional = [hunk for hunk in edited.hunks if woven.is_made_by_gen(hunk)]
        python = [text for path, text in edited.texts.items() if path in woven.package.origins]
        self.names = imports_of([*python, *(woven.package.files[path] for path in woven.package.origins)])
        self._made: dict[frozenset[tuple[str, str]], Package | LoomError] = {}

    def make(self, changes: set[Replacement], hunks: list[Hunk]) -> Outcome:
        """Weaves with these changes; it holds where the package then has these hunks, and nothing else."""
        texts = {}
        for path in sorted({change.path for change in changes}):
            before = self._woven.texts[path]
            after = apply_replacements(before, [change for change in changes if change.path == path])
            texts[path] = completed(before, after, self.names)
        return self.weave(texts, hunks)

    def weave(self, texts: dict[str, str], hunks: list[Hunk]) -> Outcome:
        """Weaves with these texts in place of those of the library."""
        key = frozenset(texts.items())
        if key not in self._made:
            try:
                self._made[key] = self._weave(self._library.with_texts(texts))
            except LoomError as error:
                self._made[key] = error
        made = self._made[key]
        if isinstance(made, LoomError):
            return Outcome(texts, None, made, frozenset(), "", 0)
        came, path, line = fits(self._woven.package.files, made.files, hunks, self.optional)
        return Outcome(texts, made, None, frozenset(came), path, line)

    def format(self, found: Outcome, hunks: list[Hunk]) -> Outcome:
        """Formats the changed fragments, where the package stays as it is."""
        try:
            formatted = run_ruff([Traced.copy(text, path) for path, text in found.texts.items()])
        except LoomError:
            return found
        outcome = self.weave(dict(zip(found.texts, formatted, strict=True)), hunks)
        return outcome if outcome.holds else found
