"""Maps data of coverage.py on packages to lines of fragments, and prints coverage.py's own reports.

A line of a fragment is a statement if coverage.py counts a line that begins with it, in any package, as one. It is
executed if one of these lines was. Imports are woven for lines that use them, and count only for imports.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from generator.disk.built import MappedPackage
from generator.disk.files import display_path
from generator.errors import LoomError, short
from generator.running.woven_files import WovenFiles

try:
    from coverage import Coverage, CoverageData, CoverageException, CoveragePlugin, FileReporter
except ImportError:
    raise LoomError("coverage.py is not installed", remedy="Install it: pip install coverage.") from None

NO_PACKAGE, OTHER = "are in no package, or not woven", "are gone, or not as they were woven"
STALE = "were woven from fragments that have changed since"


@dataclass
class CoveredFragments:
    """The lines of fragments that runs of packages covered.

    Attributes:
        lines: source -> line of a statement -> whether it was executed.
        sources: all sources of the measured packages.
        ignored: why files do not count -> the files.
    """

    lines: dict[str, dict[int, bool]] = field(default_factory=lambda: defaultdict(dict))
    sources: set[str] = field(default_factory=set)
    ignored: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


def read_covered(paths: list[Path], files: WovenFiles) -> CoveredFragments:
    """Reads data files of coverage.py, and maps the lines of all packages in them."""
    executed: dict[Path, set[int]] = defaultdict(set)
    packages: dict[Path, MappedPackage] = {}
    result = CoveredFragments()
    for data in map(_read_data, paths):
        for measured in data.measured_files():
            if (woven := files.find(measured)) is None or woven.notes:
                result.ignored[OTHER if woven else NO_PACKAGE].append(measured)
                continue
            packages[woven.package.folder] = woven.package
            executed[woven.package.folder / woven.path].update(data.lines(measured) or [])
    for package, name in [(each, name) for each in packages.values() for name in each.origins]:
        result.sources.update(package.lock.inputs)
        file = package.folder / name
        if not file.is_file() or package.is_edited(name):
            result.ignored[OTHER].append(str(file))
            continue
        texts = package.read_lines(name)
        # the first lines of statements, without those that coverage.py excludes
        for line in Coverage(data_file=None, config_file=False).analysis2(str(file))[1]:
            path, number = package.origins[name][line - 1][0][1]
            if not path.startswith("fragments/"):
                continue
            if files.drift(package, path):
                result.ignored[STALE].append(str(file))
            elif not _is_import(texts[line - 1]) or _is_import(_source_lines(files, path)[number - 1]):
                lines = result.lines[path]
                lines[number] = lines.get(number, False) or line in executed[file]
    return result


def write_report(covered: CoveredFragments, files: WovenFiles, html: Path | None, as_json: bool) -> float:
    """Writes coverage.py's reports of fragments, and returns the percentage of executed lines."""
    sources = sorted(covered.lines.items())
    plugin = _FragmentPlugin({str(_find_source(files, path)): (path, lines) for path, lines in sources})
    coverage = Coverage(data_file=None, config_file=False, plugins=[lambda registry: registry.add_file_tracer(plugin)])
    data = coverage.get_data()
    data.add_lines({file: [n for n, done in lines.items() if done] for file, (_, lines) in plugin.sources.items()})
    data.add_file_tracers(dict.fromkeys(plugin.sources, plugin._coverage_plugin_name))
    if html:
        coverage.html_report(directory=str(html), title="Fragments")
    return coverage.json_report(outfile="-") if as_json else coverage.report(show_missing=True, precision=2)


class _FragmentPlugin(CoveragePlugin):
    """Gives coverage.py the statements of fragments: file -> source and lines."""

    def __init__(self, sources: dict[str, tuple[str, dict[int, bool]]]):
        self.sources = sources

    def file_reporter(self, filename: str) -> FileReporter:
        return _FragmentReporter(filename, *self.sources[filename])


class _FragmentReporter(FileReporter):
    def __init__(self, filename: str, source: str, lines: dict[int, bool]):
        super().__init__(filename)
        self._source, self._lines = source, set(lines)

    def relative_filename(self) -> str:
        return self._source

    def lines(self) -> set[int]:
        return self._lines


def _find_source(files: WovenFiles, source: str) -> Path:
    """Returns the file of a source in the project."""
    return next(root / source for root in files.project.roots if (root / source).is_file()).resolve()


@cache
def _source_lines(files: WovenFiles, source: str) -> list[str]:
    return _find_source(files, source).read_text(encoding="utf-8").splitlines()


def _is_import(line: str) -> bool:
    return line.lstrip().startswith(("import ", "from "))


def _read_data(path: Path) -> CoverageData:
    """Reads a data file of coverage.py."""
    data, reason = CoverageData(basename=str(path)), "no database"
    with path.open("rb") as file:
        is_database = file.read(15) == b"SQLite format 3"  # coverage.py makes one of an empty file
    try:
        if is_database:
            data.read()
            return data
    except (CoverageException, sqlite3.Error) as error:
        reason = short(str(error))
    raise LoomError(
        f"is not data of coverage.py: {reason}", display_path(path), "Give a .coverage file of coverage.py."
    )
