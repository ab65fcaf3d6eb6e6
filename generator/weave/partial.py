"""Weaves single definitions and what they use, without the rest of their package."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from generator.code.bindings import free_names
from generator.language.parts import Definition, Splice
from generator.recipe.recipe import Recipe
from generator.recipe.stated import apply_statements
from generator.weave.fill import fill_text
from generator.weave.points import find_points, find_points_in
from generator.weave.splice import weave_splices


def weave_some(recipe: Recipe, roots: Collection[str]) -> dict[str, Definition]:
    """Weaves definitions, neither threaded nor laid out: a few hundredths of a package's time.

    Args:
        roots: names of definitions; those that no selected fragment has are skipped.

    Returns:
        name -> definition, each after the ones that it uses.
    """
    recipe = apply_statements(recipe)
    program = [fragment for fragment in recipe.fragments if fragment.folder != "tests"]
    hosts = {definition.name: (definition, fragment) for fragment in program for definition in fragment.definitions}
    splices = [
        (replace(splice, optional=True), fragment) for fragment in recipe.fragments for splice in fragment.splices
    ]
    woven: dict[str, Definition] = {}
    visited: set[str] = set()

    def splices_of(definition: Definition) -> list[Splice]:
        """Returns all splices; those at the points of a definition, or at points of these, are filled."""
        points, new = set[str](), set(find_points(definition.name, definition.text))
        while new:
            points |= new
            new = {point for splice, _ in splices if splice.point in new for point in find_points_in(splice)} - points
        return [
            replace(splice, body=fill_text(splice.body, fragment, recipe)) if splice.point in points else splice
            for splice, fragment in splices
        ]

    def visit(name: str) -> None:
        if name in hosts and name not in visited:
            visited.add(name)
            definition, fragment = hosts[name]
            definition = replace(definition, text=fill_text(definition.text, fragment, recipe))
            definition = weave_splices({name: definition}, splices_of(definition))[0][name]
            for used in free_names(definition.text.text):
                visit(used)
            woven[name] = definition

    for root in roots:
        visit(root)
    return woven
