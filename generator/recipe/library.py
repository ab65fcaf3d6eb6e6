"""The library: all source files, of fragments, templates and targets, as texts in memory."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import cached_property
from keyword import iskeyword
from pathlib import Path

from generator.errors import LoomError, nearest
from generator.language.fragment import Fragment, parse_fragment
from generator.recipe.files import check_characters, read_text

FOLDERS = ("fragments", "templates", "targets")
_SUFFIXES = (".py", ".toml", ".jinja")
_PACKAGE = Path(__file__).resolve().parents[1]
_OWN_ROOTS = {_PACKAGE.parent, _PACKAGE / "_library"}  # of gen's own fragments, in the repository or installed


def is_package_name(name: str) -> bool:
    """Returns whether an architecture or a target may have this name."""
    return name.isascii() and name.isidentifier() and not iskeyword(name)


class Library:
    """Source texts by path. Each fragment among them is parsed once.

    Args:
        files: path relative to its root, with forward slashes -> text, with any line ends.
        builtin: the paths that the user of a project cannot edit; the others are the project's own.
        formatted: the paths of fragments in black's form, as `make lint` holds those of gen.
    """

    def __init__(self, files: dict[str, str], builtin: Collection[str] | None = None, formatted: Collection[str] = ()):
        self.builtin = frozenset(files if builtin is None else builtin)
        self.files = {path: re.sub(r"\r\n?", "\n", text) for path, text in sorted(files.items())}
        self.formatted = {path: self.files[path] for path in formatted}
        self._fragments: dict[str, Fragment] = {}

    @classmethod
    def read(cls, roots: Sequence[Path]) -> Library:
        """Reads the folders fragments/, templates/ and targets/ of each root."""
        files: dict[str, str] = {}
        seen: dict[str, Path] = {}
        builtin: set[str] = set()
        for root in roots:
            for path in sorted(p for folder in FOLDERS for p in (root / folder).rglob("*") if p.suffix in _SUFFIXES):
                name = path.relative_to(root).as_posix()
                if name.endswith("__init__.py") or path.is_dir():
                    continue
                if name in seen:
                    raise LoomError(f"also built in, at {seen[name]}", str(path), "Give this file another name.")
                files[name], seen[name] = read_text(path, str(path)), path
                check_characters(files[name], str(path))
            builtin |= files.keys() if root == roots[0] else set()
        return cls(files, builtin, builtin if {root.resolve() for root in roots[:1]} & _OWN_ROOTS else ())

    def with_texts(self, texts: dict[str, str]) -> Library:
        """Returns the library with some texts changed; it keeps the parsed fragments of the others."""
        result = Library({**self.files, **texts}, self.builtin, self.formatted.keys() - texts.keys())
        kept = {name: f for name, f in self._fragments.items() if result.files[f.path] == self.files[f.path]}
        result._fragments.update(kept)
        return result

    def architectures(self) -> list[str]:
        return self._named("templates/architectures/", ".toml")

    def targets(self) -> list[str]:
        return self._named("targets/", "/target.toml")

    def fragments(self) -> list[str]:
        return self._names("fragments/", ".py")

    def _named(self, prefix: str, suffix: str) -> list[str]:
        """Returns the names of architectures or targets, which become the names of packages."""
        names = self._names(prefix, suffix)
        for name in names:
            if not is_package_name(name):
                remedy = "Rename it: letters, digits and _, a letter first, and no keyword of Python."
                raise LoomError(f"{name!r} cannot be the name of a package", f"{prefix}{name}{suffix}", remedy)
        return names

    def _names(self, prefix: str, suffix: str) -> list[str]:
        return [
            path[len(prefix) : -len(suffix)] for path in self.files if path.startswith(prefix) and path.endswith(suffix)
        ]

    def fragment(self, name: str, where: str | None = None) -> Fragment:
        """Returns the fragment `folder/name`.

        Args:
            where: the place that selects it, for the error.
        """
        path = f"fragments/{name}.py"
        if path not in self.files:
            raise LoomError(f"unknown fragment {name!r}", where, nearest(name, self.fragments()))
        if name not in self._fragments:
            self._fragments[name] = parse_fragment(path, self.files[path])
        return self._fragments[name]

    @cached_property
    def everything(self) -> list[Fragment]:
        """All fragments that can be parsed, selected or not: for suggestions."""
        return self.fragments_with("")

    def fragments_with(self, text: str) -> list[Fragment]:
        """Returns the fragments that can be parsed and in which a text stands."""
        parsed = []
        for name in self.fragments():
            if text in self.files[f"fragments/{name}.py"]:
                with suppress(LoomError):  # raised when it is selected
                    parsed.append(self.fragment(name))
        return parsed
