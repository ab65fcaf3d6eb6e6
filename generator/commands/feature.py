"""Measures what a feature touches: the packages that select it, woven again without it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from generator.commands.hunks import hunks
from generator.errors import LoomError

if TYPE_CHECKING:
    from generator.commands.project import Combination, Project
    from generator.fit import Choice
    from generator.layers import Kind
    from generator.library import Library
    from generator.recipe import Recipe


class Reach(NamedTuple):
    """What a feature reaches beyond its own file.

    Attributes:
        others: lines of other fragments that must change for the feature to be there or not; None where no package
            weaves without it.
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
    definition. Where something needs the feature, the package is woven as `gen new` would for a checkpoint without it:
    of another kind of layer, or by a rule.

    Args:
        project: where the sources are.
        fragment: the feature's name, like `model/rope`.
        packages: those to weave.
    """
    from generator.recipe import select
    from generator.weave import weave

    library, generated, woven = project.library(), 0, 0
    recipes = {combination: select(*combination, library) for combination in packages}
    selecting = [c for c, recipe in recipes.items() if fragment in {f.name for f in recipe.fragments}]
    for combination in selecting:
        names = [f.name for f in recipes[combination].fragments]
        tests = [name for name in names if name.startswith("tests/")]  # they speak of features by their names
        without = _without(recipes[combination], fragment, tests, library)
        if without is None:
            continue
        woven += 1
        for path, text in weave(*combination, library, tests).files.items():
            other = without.get(path, "").splitlines()
            generated += sum(len(hunk.before) for hunk in hunks(text.splitlines(), other))
    return Reach(0 if woven else None, len(selecting), generated, woven)


def _without(recipe: Recipe, fragment: str, tests: list[str], library: Library) -> dict[str, str] | None:
    """The files of a package without a feature and without its tests; None where it does not weave."""
    from generator.fit import complete
    from generator.weave import weave

    for choice in _choices(recipe, fragment, tests):
        name = f"{recipe.architecture}_without"
        try:
            _, trial = complete(choice, library, recipe.target, name, recipe.said("title"))
            files = weave(name, recipe.target, trial.library).files
        except LoomError:
            continue
        return {path: text.replace(f"{name}_{recipe.target}", recipe.name) for path, text in files.items()}
    return None


def _choices(recipe: Recipe, fragment: str, tests: list[str]) -> Iterator[Choice]:
    """What an architecture could say instead: without it, with layers of a kind that lacks it, or by a rule."""
    from generator.fit import Choice
    from generator.layers import find_groups, make_pattern

    (feature,) = (selected for selected in recipe.fragments if selected.name == fragment)
    read = {name for splice in feature.splices for name in splice.reads}
    kinds = {name: _kind_without(kind, fragment, read) for name, kind in recipe.pattern.every.items()}
    pattern = make_pattern(recipe.pattern.groups, kinds) if any(kinds) else None  # one without a name is all layers
    yield Choice(recipe, left_out=[fragment, *tests], pattern=pattern)
    for kinds, rule in ((recipe.pattern.every, None), *((rule.kinds, rule) for rule in recipe.rules)):
        having = [name for name, kind in kinds.items() if fragment in kind.fragments]
        lacking = [name for name in kinds if name not in having]
        if rule is None and having:
            for name in lacking:
                yield Choice(recipe, left_out=list(tests), pattern=make_pattern(find_groups([name]), kinds))
        elif rule and (fragment in rule.without or (having and lacking)):
            choice, groups = (
                Choice(recipe, left_out=list(tests)),
                rule.groups or (find_groups(lacking[:1]) if lacking else ()),
            )
            if choice.follow(replace(rule, groups=groups), recipe, {}):
                yield choice


def _kind_without(kind: Kind, fragment: str, read: set[str]) -> Kind:
    """A kind of layer without a fragment, and without the values that only this fragment's splices read."""
    init, call = ({k: v for k, v in given.items() if k not in read} for given in (kind.init, kind.call))
    return replace(kind.without([fragment]), init=init, call=call)
