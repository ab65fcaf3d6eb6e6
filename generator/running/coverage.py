"""Maps what coverage.py measured of packages to lines of fragments, for coverage.py's own reports.

A woven line counts for the source that it begins with, and is a statement where coverage.py says so. A fragment line
is executed where one of the statements that it begins was, in any package; one that begins none, as it stands inside
the lines of others, where one of these was. Imports are woven for lines that use them, and count only for imports.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from generator.code.traced import Origin
from generator.disk.built import MappedPackage
from generator.disk.look import show
from generator.errors import LoomError, short
from generator.running.origins import Origins

try:
    from coverage import Coverage, CoverageData, CoverageException, CoveragePlugin, FileReporter
except ImportError:
    raise LoomError("coverage.py is not installed", remedy="Install it: pip install coverage.") from None

NO_PACKAGE, OTHER = "are in no package, or not woven", "are gone, or not as they were woven"
STALE = "were woven from fragments that have changed since"
_BAD_DATA = (ValueError, KeyError, TypeError, AttributeError, RecursionError, sqlite3.Error, CoverageException)
_IMPORTS = ("import ", "from ")


@dataclass
class Covered:
    """What data say of fragments.

    Attributes:
        lines: source -> line -> whether it was executed.
        sources: all that the measured packages are made from.
        ignored: why files do not count -> these files.
    """

    lines: dict[str, dict[int, bool]] = field(default_factory=lambda: defaultdict(dict))
    sources: set[str] = field(default_factory=set)
    ignored: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


def read_covered(paths: list[Path], origins: Origins) -> Covered:
    """Reads the fragment lines of all packages that files of coverage.py have data of."""
    executed: dict[Path, set[int]] = defaultdict(set)
    packages: dict[Path, MappedPackage] = {}
    result = Covered()
    for path in paths:
        for measured, lines in _read(path).items():
            if (woven := origins.find(measured)) is None or woven.notes:
                result.ignored[OTHER if woven else NO_PACKAGE].append(measured)
                continue
            packages[woven.package.folder] = woven.package
            executed[woven.package.folder / woven.path] |= lines
    begun: dict[Origin, bool] = {}
    inside: dict[Origin, bool] = {}
    for package, name in [(each, name) for each in packages.values() for name in each.origins]:
        file = package.folder / name
        if not file.is_file() or package.edited(name):
            result.ignored[OTHER].append(str(file))
            continue
        texts = package.lines(name)
        # the lines that statements begin with, without those that coverage.py leaves out
        for line in Coverage(data_file=None, config_file=False).analysis2(str(file))[1]:
            for number, origin in enumerate(dict.fromkeys(origin for _, origin in package.origins[name][line - 1])):
                if not origin.path.startswith("fragments/"):
                    continue
                if origins.changed(package, origin.path):
                    result.ignored[STALE].append(str(file))
                elif not _is_import(texts, line) or _is_import(_source(origins, origin.path), origin.line):
                    found = inside if number else begun
                    found[origin] = found.get(origin, False) or line in executed[file]
    for origin, done in sorted((inside | begun).items()):
        result.lines[origin.path][origin.line] = done
    result.sources = {path for package in packages.values() for path in package.lock.inputs}
    return result


def report(found: Covered, origins: Origins, html: Path | None, as_json: bool) -> float:
    """Writes coverage.py's reports of fragments, and returns how many percent of their lines were executed."""
    plugin = _Fragments({str(_place(origins, path)): (path, lines) for path, lines in found.lines.items()})
    coverage = Coverage(data_file=None, config_file=False, plugins=[lambda registry: registry.add_file_tracer(plugin)])
    data = coverage.get_data()
    data.add_lines({file: [n for n, done in lines.items() if done] for file, (_, lines) in plugin.sources.items()})
    data.add_file_tracers(dict.fromkeys(plugin.sources, plugin._coverage_plugin_name))
    if html:
        coverage.html_report(directory=str(html), title="Fragments")
    return coverage.json_report(outfile="-") if as_json else coverage.report(show_missing=True, precision=2)


class _Fragments(CoveragePlugin):
    """Tells coverage.py which lines of fragments are statements: file -> source and lines."""

    def __init__(self, sources: dict[str, tuple[str, dict[int, bool]]]):
        self.sources = sources

    def file_reporter(self, filename: str) -> FileReporter:
        return _Reporter(filename, *self.sources[filename])


class _Reporter(FileReporter):
    def __init__(self, filename: str, source: str, lines: dict[int, bool]):
        super().__init__(filename)
        self._source, self._lines = source, lines

    def relative_filename(self) -> str:
        return self._source

    def lines(self) -> set[int]:
        return set(self._lines)


def _place(origins: Origins, source: str) -> Path:
    """Finds the file of a source that is in the project."""
    return next(root / source for root in origins.project.roots if (root / source).is_file()).resolve()


@cache
def _source(origins: Origins, source: str) -> list[str]:
    return _place(origins, source).read_text(encoding="utf-8").splitlines()


def _is_import(lines: list[str], number: int) -> bool:
    return lines[number - 1].lstrip().startswith(_IMPORTS)


def _read(path: Path) -> dict[str, set[int]]:
    """Reads the executed lines of each file, from a data file or from what `coverage json` wrote."""
    content = path.read_bytes()
    try:
        if content.startswith(b"SQLite format 3"):
            data = CoverageData(basename=str(path))
            data.read()
            return {file: set(data.lines(file) or []) for file in data.measured_files()}
        files = json.loads(content)["files"]
        return {file: {int(line) for line in entry["executed_lines"]} for file, entry in files.items()}
    except _BAD_DATA as error:
        remedy = "Give a .coverage file of coverage.py, or what `coverage json` writes."
        explains = isinstance(error, (ValueError, sqlite3.Error, CoverageException))
        detail = f": {short(str(error))}" if explains else ""  # other errors name Python's types, and not the file
        raise LoomError(f"is not data of coverage.py{detail}", show(path), remedy) from None
