"""Weaves single definitions and what they use, without the rest of their package."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from generator.code.bindings import free_names
from generator.language.parts import Definition
from generator.recipe.recipe import Recipe
from generator.recipe.stated import apply_statements
from generator.weave.fill import fill_fragment
from generator.weave.splice import weave_splices


def weave_some(recipe: Recipe, roots: Collection[str]) -> dict[str, Definition]:
    """Weaves definitions, neither threaded nor laid out: a few hundredths of a package's time.

    Args:
        roots: names of definitions; those that no selected fragment has are skipped.

    Returns:
        name -> definition, each after the ones that it uses.
    """
    recipe = apply_statements(recipe)
    fragments = [fill_fragment(fragment, recipe) for fragment in recipe.fragments]
    program = [fragment for fragment in fragments if fragment.folder != "tests"]
    definitions = {definition.name: definition for fragment in program for definition in fragment.definitions}
    splices = [replace(splice, optional=True) for fragment in fragments for splice in fragment.splices]
    woven: dict[str, Definition] = {}
    visited: set[str] = set()

    def visit(name: str) -> None:
        if name in definitions and name not in visited:
            visited.add(name)
            definition = weave_splices({name: definitions[name]}, splices)[0][name]
            for used in free_names(definition.text.text):
                visit(used)
            woven[name] = definition

    for root in roots:
        visit(root)
    return woven
