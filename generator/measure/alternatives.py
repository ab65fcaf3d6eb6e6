"""What a package would be without a feature, or with one more: its files, woven from the same fragments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from generator.checkpoint.fit import Choice, complete
from generator.errors import LoomError
from generator.language.fragment import Fragment
from generator.recipe.library import Library
from generator.recipe.pattern import Kind, find_groups, make_pattern
from generator.recipe.recipe import Recipe
from generator.weaver import weave


def files_with(recipe: Recipe, fragment: str, tests: list[str], library: Library) -> dict[str, str] | None:
    """The files of a package with a fragment added, without its tests; None where it does not weave."""
    try:
        return _woven(Choice(recipe, left_out=list(tests), added=[fragment]), library)
    except LoomError:
        return None


def files_without(
    recipe: Recipe, fragment: str, tests: list[str], library: Library, often: Counter[str]
) -> dict[str, str] | None:
    """The files of a package without a feature and without its tests; None where it does not weave.

    Where something needs the feature, the package is woven as `gen new` would for a checkpoint without it: of another
    kind of layer, or by a rule. Where that is not to be had either, what builds on the feature goes with it, and at
    most one other fragment stands in for it.

    Args:
        often: how many packages select a fragment: the most usual one is the first to stand in.
    """
    choices = [_Trial(choice, can_replace=True) for choice in _choices(recipe, fragment, tests)]
    failed: list[tuple[_Trial, LoomError]] = []
    while choices:
        for trial in choices:
            try:
                return _woven(trial.choice, library)
            except LoomError as error:
                failed.append((trial, error))
        choices = [other for trial, error in failed for other in _mended(trial, error, fragment, often, library)]
        failed = []
    return None


class _Trial(NamedTuple):
    """What to weave, and whether a fragment may yet stand in for another."""

    choice: Choice
    can_replace: bool


def _woven(choice: Choice, library: Library) -> dict[str, str]:
    """The files of what was chosen, which calls itself as the package does that it is made from."""
    recipe = choice.base
    name = f"{recipe.architecture}_other"
    _, trial = complete(choice, library, recipe.target, name, recipe.said("title"))
    files = weave(name, recipe.target, trial.library, parts=recipe.parts).files
    return {path: text.replace(name, recipe.architecture) for path, text in files.items()}


def _choices(recipe: Recipe, fragment: str, tests: list[str]) -> Iterator[Choice]:
    """What an architecture could say instead: without it, with layers of a kind that lacks it, or by a rule."""
    yield _leave_out(Choice(recipe, left_out=list(tests)), fragment)
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
            if choice.follow(replace(rule, groups=groups), recipe, {}, ""):
                yield choice


def _mended(trial: _Trial, error: LoomError, feature: str, often: Counter[str], library: Library) -> Iterator[_Trial]:
    """What an error says to choose instead: no fragment that needs what is not there, or one that stands in for it."""
    choice, can_replace = trial
    if error.dependent:
        yield _Trial(_leave_out(choice, error.dependent), can_replace)
    elif can_replace:
        others = [name for name in error.candidates if name != feature and name not in choice.left_out]
        for name in sorted(others, key=lambda name: -often[name]):
            yield _Trial(_stand_in(choice, library.fragment(name)), can_replace=False)


def _stand_in(choice: Choice, fragment: Fragment) -> Choice:
    """A choice with one more fragment, and without those that exclude it."""
    for other in choice.base.fragments:
        if {fragment.name, fragment.short}.intersection(other.excludes):
            choice = _leave_out(choice, other.name)
    # which size a preset gives makes no difference to any other line
    sizes = {member.name: 1 for member in fragment.fields if member.is_required}
    presets = {preset: {**choice.presets.get(preset, {}), **sizes} for preset in choice.base.presets}
    return replace(choice, added=[*choice.added, fragment.name], presets=presets)


def _leave_out(choice: Choice, fragment: str) -> Choice:
    """A choice without a fragment, also in kinds of layer, and without the values that only its splices read."""
    recipe = choice.base
    read = {name for splice in recipe.library.fragment(fragment).splices for name in splice.reads}
    pattern = choice.pattern or recipe.pattern
    kinds = {name: _kind_without(kind, fragment, read) for name, kind in pattern.every.items()}
    named = make_pattern(pattern.groups, kinds) if any(kinds) else None  # one without a name is all layers
    added = [name for name in choice.added if name != fragment]
    return replace(choice, left_out=[*choice.left_out, fragment], added=added, pattern=named)


def _kind_without(kind: Kind, fragment: str, read: set[str]) -> Kind:
    """A kind of layer without a fragment, and without the values that only this fragment's splices read."""
    init, call = ({k: v for k, v in given.items() if k not in read} for given in (kind.init, kind.call))
    return replace(kind.without([fragment]), init=init, call=call)
