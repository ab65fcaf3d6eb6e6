"""Measures what a feature touches: packages woven with it and without it, and compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from generator.code.hunks import hunks

if TYPE_CHECKING:
    from generator.disk.project import Combination, Project
    from generator.recipe.recipe import Recipe
    from generator.recipe.toml import Toml


class Reach(NamedTuple):
    """What a feature reaches beyond its own file.

    Attributes:
        others: lines of other fragments that must change for the feature to be there or not; None where no package
            could be compared.
        selecting: lines of an architecture file that select it, the most of all architectures.
        packages: those that select it.
        without: how many of those were compared with what they are without it.
        added: where no package selects it, how many were compared with what they are with it added.
        generated: generated lines that are there, or differ, because of it, in the packages that were compared.
    """

    others: int | None
    selecting: int
    packages: int
    without: int
    added: int
    generated: int


def reach(project: Project, fragment: str, packages: Sequence[Combination]) -> Reach:
    """Takes the fragment out of every selection, leaves every other fragment as it is, and weaves.

    A package that weaves so needs no line of another fragment changed: the count is 0 by that experiment, and not by
    definition. A feature that no package selects is added to each of them instead.

    Args:
        project: where the sources are.
        fragment: the feature's name, like `model/rope`.
        packages: those to weave.
    """
    from generator.measure.alternatives import files_with, files_without
    from generator.recipe.recipe import select
    from generator.weaver import weave

    library = project.library()
    recipes = [select(it.architecture, it.target, library, parts=it.parts) for it in packages]
    often = Counter(selected.name for recipe in recipes for selected in recipe.fragments)
    compared = generated = 0
    for recipe in recipes:
        selected = [each.name for each in recipe.fragments]
        common = recipe.package_file.data.fragments  # some of them where the feature is not there
        tests = [
            name for name in dict.fromkeys([*selected, *common]) if name.startswith("tests/")
        ]  # they name features
        if not often[fragment]:
            other = files_with(recipe, fragment, tests, library)
        elif fragment in selected:
            other = files_without(recipe, fragment, tests, library, often)
        else:
            continue
        if other is not None:
            own = weave(recipe.architecture, recipe.target, library, tests, recipe.parts).files
            generated += _changed(own, other) if often[fragment] else _changed(other, own)
            compared += 1
    lines = max(_selecting(fragment, recipes), default=0) if often[fragment] else 1  # by which it was added
    without, added = (compared, 0) if often[fragment] else (0, compared)
    return Reach(0 if compared else None, lines, often[fragment], without, added, generated)


def _changed(having: dict[str, str], lacking: dict[str, str]) -> int:
    """The lines of a package that are not in the other."""
    return sum(
        len(hunk.before)
        for path, text in having.items()
        for hunk in hunks(text.splitlines(), lacking.get(path, "").splitlines())
    )


def _selecting(fragment: str, recipes: Sequence[Recipe]) -> Iterator[int]:
    """How often each architecture file names the fragment among those that it selects."""
    files: dict[str, Toml] = {file.path: file for recipe in recipes for file in recipe.lineage}
    for file in files.values():
        tables = [file.data, *file.data.kinds.values(), *file.data.targets.values()]
        yield sum(table.fragments.count(fragment) for table in tables)
