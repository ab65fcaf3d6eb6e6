"""Measures what a feature touches: the packages that select it, woven again without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from generator.commands.hunks import hunks
from generator.errors import LoomError

if TYPE_CHECKING:
    from generator.commands.project import Combination, Project


class Reach(NamedTuple):
    """What a feature reaches beyond its own file.

    Attributes:
        others: lines of other fragments that must change for the feature to be there or not; None where in every
            package a fragment needs a definition of it, so that it can only be replaced by another of the same names.
        packages: those that select it.
        generated: generated lines that are there, or differ, because of it, in the packages that weave without it.
        woven: how many of the packages those are.
    """

    others: int | None
    packages: int
    generated: int
    woven: int = 0


def reach(project: Project, fragment: str, packages: Sequence[Combination]) -> Reach:
    """Takes the fragment out of every selection, leaves every other fragment as it is, and weaves.

    A package that weaves so needs no line of another fragment changed: the count is 0 by that experiment, and not by
    definition.

    Args:
        project: where the sources are.
        fragment: the feature's name, like `model/rope`.
        packages: those to weave.
    """
    from generator.recipe import select
    from generator.weave import weave

    library, generated, woven = project.library(), 0, 0
    selections = {c: [f.name for f in select(*c, library).fragments] for c in packages}
    selecting = [combination for combination, names in selections.items() if fragment in names]
    for combination in selecting:
        names = selections[combination]
        tests = [name for name in names if name.startswith("tests/")]  # they speak of features by their names
        try:
            without = weave(*combination, library, (fragment, *tests)).files
        except LoomError:
            continue
        woven += 1
        for path, text in weave(*combination, library, tests).files.items():
            other = without.get(path, "").splitlines()
            generated += sum(len(hunk.before) for hunk in hunks(text.splitlines(), other))
    return Reach(0 if woven else None, len(selecting), generated, woven)
