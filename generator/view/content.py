"""Gathers the content of the site: every file of the packages, equal ones once, and the origin of each line."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import NamedTuple
from urllib.parse import quote

from generator.code.traced import Origin
from generator.disk.built import MappedPackage, Segments
from generator.disk.lock import LOCK, MAP

_GOLDEN_ANGLE = 137.508  # degrees: neighbours in the list of sources get very different hues


class SourceFile(NamedTuple):
    """A fragment, an architecture, a target or a template, with its title and citation."""

    number: int
    path: str
    text: str
    title: str
    citation: str

    @property
    def is_fragment(self) -> bool:
        return self.path.startswith("fragments/") and self.path.endswith(".py")

    @property
    def name(self) -> str:
        """Returns the name of a fragment in architecture files; of other sources, the path below templates/."""
        if self.is_fragment:
            return self.path.removeprefix("fragments/").removesuffix(".py")
        return self.path.removeprefix("templates/")

    @property
    def hue(self) -> int:
        return round(self.number * _GOLDEN_ANGLE) % 360

    @property
    def url(self) -> str:
        return f"source/{quote(self.name)}.html"


@dataclass
class FileVersion:
    """A file as one or more packages have it, which differ only in lines that name the package or its architecture.

    Attributes:
        path: in the package.
        lines: in the first of the packages.
        segments: of each line; the origin of a file from a template is line 0 of the template.
        packages: name -> path of its architecture file.
        own: package -> number of a line, from 1 -> text, where it differs from the first package.
    """

    path: str
    lines: list[str]
    segments: list[Segments]
    packages: dict[str, str] = field(default_factory=dict)
    own: dict[str, dict[int, str]] = field(default_factory=dict)

    @property
    def first(self) -> str:
        return next(iter(self.packages))

    def url(self, package: str = "") -> str:
        """Returns the address of its page for one of the packages."""
        query = f"?p={package}" if package not in ("", self.first) else ""
        return f"code/{quote(self.path)}/{self.first}.html{query}"

    @cached_property
    def sources(self) -> list[str]:
        """Returns the source of each line's first character, '' if it has none."""
        return [line[0][1].path if line else "" for line in self.segments]

    def source_in(self, package: str, source: str) -> str:
        """Returns the source in a package for one in the first package: their architecture files differ."""
        return self.packages[package] if source == self.packages[self.first] else source

    def stretches(self) -> Iterator[tuple[str, int, int]]:
        """Yields source, first and last line, from 1, of each run of lines of one source."""
        first = 1
        for source, run in groupby(self.sources):
            last = first + len(list(run)) - 1
            yield source, first, last
            first = last + 1

    def shares(self) -> Iterator[tuple[str, int, int]]:
        """Yields each source, the number of lines of those before it, and that of its own, in order of appearance."""
        before = 0
        for source, lines in Counter(self.sources).items():
            yield source, before, lines
            before += lines

    def lines_by_source(self) -> dict[str, list[int]]:
        """Returns source -> numbers, from 1, of the lines that contain some of it."""
        result: dict[str, list[int]] = defaultdict(list)
        for number, segments in enumerate(self.segments, 1):
            for source in {origin.path for _, origin in segments}:
                result[source].append(number)
        return result


class SharedLines(NamedTuple):
    """Lines that contain some of a source, equal in one or more versions of a file.

    Attributes:
        at: for each occurrence the version, the number of its first line, and the packages.
    """

    path: str
    lines: list[str]
    at: list[tuple[FileVersion, int, list[str]]]


class Content:
    """The files of packages and their sources.

    Args:
        packages: in the order of the site.
        library: source path -> text, title and citation.
    """

    def __init__(self, packages: Sequence[MappedPackage], library: dict[str, tuple[str, str, str]]):
        self.packages = packages
        self.names = [package.name for package in packages]
        self.architectures = {p.name: f"templates/architectures/{p.lock.architecture}.toml" for p in packages}
        self.files: dict[str, dict[str, FileVersion]] = {}  # package -> path -> version
        self.edited: dict[str, list[str]] = {}
        versions: dict[tuple, FileVersion] = {}
        for package in packages:
            paths = [path for path in package.lock.outputs if path not in (LOCK, MAP)]
            self.files[package.name] = {path: self._version_of(package, path, versions) for path in paths}
            self.edited[package.name] = [path for path in paths if package.is_edited(path)]
        self.versions = sorted(versions.values(), key=lambda version: version.path)
        # a source in a map may be missing in the library
        named = {origin.path for version in self.versions for line in version.segments for _, origin in line}
        paths = sorted(named | set(self.architectures.values()) | library.keys())
        self.sources = {
            path: SourceFile(number, path, *library.get(path, ("", "", ""))) for number, path in enumerate(paths)
        }

    @property
    def source_lines(self) -> int:
        return sum(len(source.text.splitlines()) for source in self.sources.values())

    @property
    def package_lines(self) -> int:
        return sum(len(version.lines) * len(version.packages) for version in self.versions)

    def _version_of(self, package: MappedPackage, path: str, versions: dict[tuple, FileVersion]) -> FileVersion:
        """Returns the version of a file, and adds the package to it."""
        lines, segments = package.read_lines(path), package.line_origins(path)
        if not segments:
            template = f"/{path.rsplit('/', 1)[-1]}.jinja"
            made_by = next((Origin(name, 0) for name in package.lock.inputs if name.endswith(template)), None)
            segments = [[(0, made_by)] if made_by else []] * len(lines)
        segments = segments[: len(lines)]
        names = "|".join((package.name, package.name.replace("_", "-"), package.lock.architecture))
        header = rf"\A# Code generated by gen .*|\b({names})\b"
        architecture = self.architectures[package.name]
        compared = tuple(
            tuple((column, origin.line if origin.path == architecture else origin) for column, origin in line)
            for line in segments
        )
        key = path, re.sub(header, "\0", "\n".join(lines)), compared
        version = versions.setdefault(key, FileVersion(path, lines, segments))
        version.packages[package.name] = architecture
        pairs = enumerate(zip(lines, version.lines, strict=True), 1)
        version.own[package.name] = {number: line for number, (line, first) in pairs if line != first}
        return version

    def stretches(self) -> dict[str, list[SharedLines]]:
        """Returns source -> runs of lines that contain some of it."""
        result: dict[str, dict[tuple, SharedLines]] = defaultdict(dict)
        for version in self.versions:
            for source, numbers in version.lines_by_source().items():
                by_source: dict[str, list[str]] = defaultdict(list)
                for name in version.packages:
                    by_source[version.source_in(name, source)].append(name)
                for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
                    first, *_, last = [*(number for _, number in run)] * 2
                    for actual, names in by_source.items():
                        own = version.own[names[0]]
                        lines = [own.get(n, version.lines[n - 1]) for n in range(first, last + 1)]
                        key = (version.path, *lines)
                        result[actual].setdefault(key, SharedLines(version.path, lines, [])).at.append(
                            (version, first, names)
                        )
        return {source: list(stretches.values()) for source, stretches in result.items()}

    def counts(self) -> dict[str, dict[str, int]]:
        """Returns source -> package -> number of its lines that contain some of the source."""
        result: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for version in self.versions:
            for source, numbers in version.lines_by_source().items():
                for package in version.packages:
                    result[version.source_in(package, source)][package] += len(numbers)
        return result
