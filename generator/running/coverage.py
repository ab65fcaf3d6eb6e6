"""Which fragment lines runs have executed, from what coverage.py noted of packages.

A woven line counts for the source that it begins with, and is a statement where coverage.py says so. A fragment line
is executed where one of the statements that it begins was, in any package; one that begins none, as it stands inside
the lines of others, where one of these was. Imports are woven for lines that use them, and count only for imports.
"""

from __future__ import annotations

import ast
import json
import sqlite3
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from generator.code.traced import Origin
from generator.disk.built import MappedPackage
from generator.disk.look import show
from generator.errors import LoomError, short
from generator.running.origins import Origins

BAD_DATA = (ValueError, KeyError, TypeError, AttributeError, RecursionError, sqlite3.Error)
Lines = dict[int, bool]  # line -> whether it was executed
NO_PACKAGE, OTHER = "are in no package, or not woven", "are gone, or not as they were woven"
STALE = "were woven from fragments that have changed since"


@dataclass
class Covered:
    """What data say of fragments.

    Attributes:
        lines: source -> its lines.
        packages: names of the packages that the data are of.
        sources: all that these packages are made from.
        ignored: why files do not count -> these files.
    """

    lines: dict[str, Lines]
    packages: list[str]
    sources: set[str]
    ignored: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


def covered(paths: list[Path], origins: Origins) -> Covered:
    """The fragment lines of all packages that files of coverage.py have data of."""
    coverage = _coverage()
    executed: dict[Path, set[int]] = defaultdict(set)
    packages: dict[Path, MappedPackage] = {}
    result = Covered({}, [], set())
    for path in paths:
        for measured, lines in _read(path, coverage).items():
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
        for line in coverage.Coverage(data_file=None, config_file=False).analysis2(str(file))[1]:
            for number, origin in enumerate(dict.fromkeys(origin for _, origin in package.origins[name][line - 1])):
                if not origin.path.startswith("fragments/"):
                    continue
                if origins.changed(package, origin.path):
                    result.ignored[STALE].append(str(file))
                elif not texts[line - 1].lstrip().startswith(("import ", "from ")) or _imports(origins, origin):
                    found = inside if number else begun
                    found[origin] = found.get(origin, False) or line in executed[file]
    for origin, done in sorted((inside | begun).items()):
        result.lines.setdefault(origin.path, {})[origin.line] = done
    result.packages = sorted(package.name for package in packages.values())
    result.sources = {path for package in packages.values() for path in package.lock.inputs}
    return result


def _imports(origins: Origins, origin: Origin) -> bool:
    """Whether a line of a source that is in the project imports."""
    roots = origins.project.roots
    return origin.line in _import_lines(next(root / origin.path for root in roots if (root / origin.path).is_file()))


@cache
def _import_lines(file: Path) -> frozenset[int]:
    nodes = [node for node in ast.walk(ast.parse(file.read_bytes())) if isinstance(node, ast.Import | ast.ImportFrom)]
    return frozenset(line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _coverage() -> Any:
    try:
        import coverage
    except ImportError:
        raise LoomError("coverage.py is not installed", remedy="Install it: pip install coverage.") from None
    return coverage


def _read(path: Path, coverage: Any) -> dict[str, set[int]]:
    """File -> lines that were executed, from a data file or from what `coverage json` wrote."""
    content = path.read_bytes()
    try:
        if content.startswith(b"SQLite format 3"):
            data = coverage.CoverageData(basename=str(path))
            data.read()
            return {file: set(data.lines(file) or []) for file in data.measured_files()}
        files = json.loads(content)["files"]
        return {file: {int(line) for line in entry["executed_lines"]} for file, entry in files.items()}
    except (*BAD_DATA, coverage.CoverageException) as error:
        remedy = "Give a .coverage file of coverage.py, or what `coverage json` writes."
        told = isinstance(error, (ValueError, sqlite3.Error, coverage.CoverageException))
        detail = f": {short(str(error))}" if told else ""  # else of Python's, which says nothing of the file
        raise LoomError(f"is not data of coverage.py{detail}", show(path), remedy) from None
