"""Gathers what the site shows: every file of the packages, equal ones once, and the origin of each line."""

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
from generator.measure.count import HEADER

_HUE = 137.508  # degrees: neighbours in the list of sources get colours that are far apart


class Source(NamedTuple):
    """A fragment, an architecture, a target or a template, and what it says about itself."""

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
        """As architecture files call a fragment; of other sources most of the path."""
        if self.is_fragment:
            return self.path.removeprefix("fragments/").removesuffix(".py")
        return self.path.removeprefix("templates/")

    @property
    def hue(self) -> int:
        return round(self.number * _HUE) % 360

    @property
    def url(self) -> str:
        return f"source/{quote(self.name)}.html"


@dataclass
class Version:
    """A file as it is in one or more packages, which differ in lines that name the package or its architecture alone.

    Attributes:
        path: in the package.
        lines: as in the first of the packages.
        plain: the same without these names.
        segments: of each line. Those of a file that a template makes have the template, and 0 for its line.
        packages: those that have it, and for each the source of its architecture.
        own: for each package the lines, by number from 1, that are not those of the first.
        others: for each line the packages that have it at this path, from the same source, as bits.
    """

    path: str
    lines: list[str]
    plain: list[str]
    segments: list[Segments]
    packages: dict[str, str] = field(default_factory=dict)
    own: dict[str, dict[int, str]] = field(default_factory=dict)
    others: list[int] = field(default_factory=list)

    @property
    def first(self) -> str:
        return next(iter(self.packages))

    def url(self, package: str = "") -> str:
        """Its page, for one of the packages."""
        asked = f"?p={package}" if package not in ("", self.first) else ""
        return f"code/{quote(self.path)}/{self.first}.html{asked}"

    @cached_property
    def sources(self) -> list[str]:
        """The source of each line's first character, '' where it has none."""
        return [line[0][1].path if line else "" for line in self.segments]

    def source_in(self, package: str, source: str) -> str:
        """What a source of the first package is in another: its architecture in place of the first's."""
        return self.packages[package] if source == self.packages[self.first] else source

    def line_in(self, package: str, number: int) -> str:
        return self.own[package].get(number, self.lines[number - 1])

    def stretches(self) -> Iterator[tuple[str, int, int]]:
        """The source, the first line and the last of each run of lines of one source; lines count from 1."""
        first = 1
        for source, run in groupby(self.sources):
            last = first + sum(1 for _ in run) - 1
            yield source, first, last
            first = last + 1

    def shares(self) -> Iterator[tuple[str, int, int]]:
        """Each source with the lines of those before it and its own, in the order in which they appear."""
        before = 0
        for source, lines in Counter(self.sources).items():
            yield source, before, lines
            before += lines


class Place(NamedTuple):
    """Lines that a source has a part in, the same in one or more versions of a file."""

    path: str
    lines: list[str]
    at: list[tuple[Version, int, list[str]]]  # the version, the number of the first of them, and the packages


class Content:
    """What the packages hold, and what it was woven from.

    Args:
        packages: in the order in which they are shown.
        library: source path -> its text, title and citation, of the whole library.
    """

    def __init__(self, packages: Sequence[MappedPackage], library: dict[str, tuple[str, str, str]]):
        self.packages = packages
        self.names = [package.name for package in packages]
        found: dict[tuple, Version] = {}
        self.architectures = {p.name: f"templates/architectures/{p.lock.architecture}.toml" for p in packages}
        self.files: dict[str, dict[str, Version]] = {}  # package -> path -> version
        for package in packages:
            versions = self.files.setdefault(package.name, {})
            for path in _shown(package):
                versions[path] = self._version(package, path, found)
        self.edited = {package.name: [path for path in _shown(package) if package.edited(path)] for package in packages}
        self.versions = sorted(found.values(), key=lambda version: version.path)
        # what a map names and the library has no more is shown all the same
        named = {origin.path for v in self.versions for line in v.segments for _, origin in line}
        named |= {source for source in self.architectures.values()}
        self.sources = {
            path: Source(number, path, *library.get(path, ("", "", "")))
            for number, path in enumerate(sorted(named | library.keys()))
            if path
        }
        self._find_others()

    def _version(self, package: MappedPackage, path: str, found: dict[tuple, Version]) -> Version:
        """The version of a file, in which this package is noted."""
        lines, segments = package.lines(path), package.origins_of(path)
        if not segments:
            template = f"/{path.rsplit('/', 1)[-1]}.jinja"
            made_by = next((Origin(name, 0) for name in package.lock.inputs if name.endswith(template)), None)
            segments = [[(0, made_by)] if made_by else []] * len(lines)
        segments = segments[: len(lines)]
        names = "|".join((package.name, package.name.replace("_", "-"), package.lock.architecture))
        plain = re.sub(rf"\b({names})\b", "\0", "\n".join(lines)).split("\n") if lines else []
        if plain and plain[0].startswith(HEADER):
            plain[0] = HEADER
        architecture = self.architectures[package.name]
        key = (path, *plain, *_without(architecture, segments))
        version = found.setdefault(key, Version(path, lines, plain, segments))
        version.packages[package.name] = architecture
        pairs = enumerate(zip(lines, version.lines, strict=True), 1)
        version.own[package.name] = {number: line for number, (line, first) in pairs if line != first}
        return version

    def _find_others(self) -> None:
        having: dict[tuple, int] = defaultdict(int)
        bits = {name: 1 << number for number, name in enumerate(self.names)}
        keys = [
            [(v.path, *pair) for pair in zip(v.plain, _without(v.packages[v.first], v.segments), strict=True)]
            for v in self.versions
        ]
        for version, lines in zip(self.versions, keys, strict=True):
            mask = sum(bits[name] for name in version.packages)
            for key in lines:
                having[key] |= mask
        for version, lines in zip(self.versions, keys, strict=True):
            version.others = [having[key] for key in lines]

    def places(self) -> dict[str, list[Place]]:
        """For each source the lines that it has a part in."""
        found: dict[str, dict[tuple, Place]] = defaultdict(dict)
        for version in self.versions:
            last: dict[str, list[int]] = {}  # source -> its runs of lines, as first and end of each
            for number, segments in enumerate(version.segments):
                for source in {origin.path for _, origin in segments}:
                    runs = last.setdefault(source, [])
                    if runs and runs[-1] == number:
                        runs[-1] = number + 1
                    else:
                        runs += number, number + 1
            for source, runs in last.items():
                for first, end in zip(runs[::2], runs[1::2], strict=True):
                    having: dict[str, list[str]] = defaultdict(list)
                    for name in version.packages:
                        having[version.source_in(name, source)].append(name)
                    for real, names in having.items():
                        lines = [version.line_in(names[0], number) for number in range(first + 1, end + 1)]
                        key = (version.path, *version.plain[first:end])
                        place = found[real].setdefault(key, Place(version.path, lines, []))
                        place.at.append((version, first + 1, names))
        return {source: list(places.values()) for source, places in found.items()}

    def counts(self) -> dict[str, dict[str, int]]:
        """Source -> package -> the lines of the package that the source has a part in."""
        result: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for version in self.versions:
            lines = Counter(path for line in version.segments for path in {origin.path for _, origin in line})
            for package in version.packages:
                for source, number in lines.items():
                    result[version.source_in(package, source)][package] += number
        return result


def _shown(package: MappedPackage) -> list[str]:
    """The files of a package that a person reads."""
    return [path for path in package.lock.outputs if path not in (LOCK, MAP)]


def _without(head: str, segments: list[Segments]) -> Iterator[tuple]:
    """Segments as they compare between packages: without the source that says which package it is."""
    for line in segments:
        yield tuple((column, origin.line if origin.path == head else origin) for column, origin in line)
