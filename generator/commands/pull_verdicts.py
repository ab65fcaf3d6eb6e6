"""What a pull means for the packages that it changes, the edited one too, by program."""

from __future__ import annotations

from collections.abc import Callable

from generator.commands.against import Report, Sides, compare_sides
from generator.commands.packages import Asked
from generator.commands.pull import Found
from generator.disk.lock import Fingerprints, with_records
from generator.disk.parallel import in_parallel
from generator.disk.project import Project
from generator.errors import LoomError


def verdicts(project: Project, found: Found, say: Callable[[str], None]) -> list[Report]:
    """A report for each package that the changed fragments change, by its place in the list."""
    edited = found.asked.combination
    names = {edited.name, *(other.name for other in found.others)}
    prints = Fingerprints(project.roots)
    listed = dict.fromkeys([*project.packages(), edited])  # which need not be in the list
    changed = [Asked(project, each, prints, project.generated) for each in listed if each.name in names]
    rows = [(asked, found.pulled.texts) for asked in changed]
    sides = []
    for asked, woven in zip(changed, in_parallel(_sides, rows, [True] * len(rows)), strict=True):
        if isinstance(woven, LoomError):
            raise woven
        sides.append(Sides(asked.combination, *woven))
    return compare_sides(sides, say)


def _sides(asked: Asked, texts: dict[str, str]) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The files of a package as its fragments make it now, and with other texts of some."""
    changed = asked.package(asked.project.library().with_texts(texts))
    return asked.woven(), with_records(changed, asked.prints)
