"""Weaves a package again with changed fragments, in memory, and compares it with the edited one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from generator.code.black import run_black
from generator.code.traced import Traced
from generator.errors import LoomError, short
from generator.package.package import Package
from generator.pull.edits import Hunk, PackageEdits, Replacement, apply_replacements, find_mismatch
from generator.pull.imports import complete_imports, import_statements
from generator.pull.sources import PackageSources
from generator.recipe.library import Library

Weave = Callable[[Library], Package]


class Trial(NamedTuple):
    """The result of weaving with changed sources.

    Attributes:
        texts: source path -> changed text.
        package: woven from them; None if that failed with the error.
        implied: derived hunks that the package also has.
        path, line: the first place, from 1, where the package is not as expected; '' and 0 if it is.
    """

    texts: dict[str, str]
    package: Package | None
    error: LoomError | None
    implied: frozenset[Hunk]
    path: str
    line: int

    @property
    def is_exact(self) -> bool:
        """Returns whether the package has the required hunks, and no other difference."""
        return self.package is not None and not self.path

    @property
    def lines(self) -> list[str]:
        """Returns the lines of the file that is not as expected."""
        return self.package.files.get(self.path, "").split("\n") if self.package else []

    @property
    def unexpected_line(self) -> str:
        """Returns the text of the first line that is not as expected."""
        return short(self.lines[self.line - 1].strip()) if 0 < self.line <= len(self.lines) else ""


class TrialWeaver:
    """Tries changes of sources; weaves each combination of texts once.

    Attributes:
        derived: hunks that follow from other lines: imports, headers, the text of templates.
        imports: name -> the import that a fragment needs for it.
    """

    def __init__(self, woven: PackageSources, edits: PackageEdits, library: Library, weave: Weave):
        self._woven, self._library, self._weave = woven, library, weave
        self.derived = [hunk for hunk in edits.hunks if woven.is_derived(hunk)]
        modules = [text for path, text in edits.texts.items() if path in woven.package.origins]
        self.imports = import_statements([*modules, *(woven.package.files[path] for path in woven.package.origins)])
        self._results: dict[frozenset[tuple[str, str]], Package | LoomError] = {}

    def make(self, changes: set[Replacement], hunks: list[Hunk]) -> Trial:
        """Weaves with these replacements; the package should then have these hunks."""
        texts = {}
        for path in sorted({change.path for change in changes}):
            before = self._woven.texts[path]
            after = apply_replacements(before, [change for change in changes if change.path == path])
            texts[path] = complete_imports(before, after, self.imports)
        return self.weave(texts, hunks)

    def weave(self, texts: dict[str, str], hunks: list[Hunk]) -> Trial:
        """Weaves with these texts in place of those of the library; the package should then have these hunks."""
        key = frozenset(texts.items())
        if key not in self._results:
            try:
                self._results[key] = self._weave(self._library.with_texts(texts))
            except LoomError as error:
                self._results[key] = error
        result = self._results[key]
        if isinstance(result, LoomError):
            return Trial(texts, None, result, frozenset(), "", 0)
        implied, path, line = find_mismatch(self._woven.package.files, result.files, hunks, self.derived)
        return Trial(texts, result, None, frozenset(implied), path, line)

    def format(self, trial: Trial, hunks: list[Hunk]) -> Trial:
        """Formats the changed sources; returns the trial as it was if the package would then differ."""
        try:
            formatted = run_black([Traced.copy(text, path) for path, text in trial.texts.items()])
        except LoomError:
            return trial
        outcome = self.weave(dict(zip(trial.texts, formatted, strict=True)), hunks)
        return outcome if outcome.is_exact else trial
