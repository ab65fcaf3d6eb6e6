"""`gen coverage`: which fragment lines nothing executed, as a table and as JSON."""

from __future__ import annotations

from itertools import groupby

from generator.commands.tables import Table
from generator.running.coverage import Covered, Lines

TESTS = "fragments/tests/"


def percent(fragments: dict[str, Lines]) -> float:
    """How much of these lines was executed, to two places rounded down; all of none."""
    each = [done for lines in fragments.values() for done in lines.values()]
    return 10_000 * sum(each) // len(each) / 100 if each else 100.0


def table(found: Covered) -> Table:
    """A row for each fragment, and the sums."""
    groups = {path: {path: lines} for path, lines in found.lines.items()}
    if any(path.startswith(TESTS) for path in found.lines):
        for name, tests in (("tests of packages", True), ("all but these", False)):
            groups[name] = {path: lines for path, lines in found.lines.items() if path.startswith(TESTS) == tests}
    rows = []
    for name, fragments in (groups | {"total": found.lines}).items():
        each = [done for lines in fragments.values() for done in lines.values()]
        rows.append((name, len(each), len(each) - sum(each), percent(fragments)))
    many = f"{len(found.packages)} package{'' if len(found.packages) == 1 else 's'}"
    return Table(f"Fragment lines executed, in {many}", ("fragment", "lines", "missing", "%"), rows)


def missing(found: Covered) -> list[str]:
    """The lines that nothing executed, `PATH:FIRST-LAST`; what is between them is no statement."""
    result = []
    for path, lines in found.lines.items():
        for done, run in groupby(sorted(lines), key=lambda line: lines[line]):
            first, *_, last = [*run] * 2
            result += [] if done else [f"{path}:{first}" if first == last else f"{path}:{first}-{last}"]
    return result


def as_json(found: Covered, absent: list[str]) -> dict:
    """All that is known, by fragment."""
    fragments = {
        path: {word: sorted(n for n in lines if lines[n] == done) for word, done in (("executed", 1), ("missing", 0))}
        for path, lines in found.lines.items()
    }
    return {
        "percent": percent(found.lines),
        "packages": found.packages,
        "fragments": fragments,
        "absent": absent,
        "ignored": {why: sorted(set(files)) for why, files in found.ignored.items()},
    }
