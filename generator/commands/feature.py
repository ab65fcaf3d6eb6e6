"""Measures how many lines of other fragments a feature changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from generator.commands.project import Combination, Project


def lines_in_other_fragments(project: Project, fragment: str, packages: Sequence[Combination]) -> int | None:
    """The lines of other fragments that must change for a feature to be there or not.

    What is to be measured: take the fragment out of the library and out of every selection, weave the packages that
    selected it again, and count the lines of other fragments that had to differ for that to work.

    Args:
        project: where the sources are.
        fragment: the feature's name, like `model/rope`.
        packages: those to weave.

    Returns:
        The number of lines, or None where it has not been measured.
    """
    return None
