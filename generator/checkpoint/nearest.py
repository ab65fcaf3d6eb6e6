"""The family that is most like a checkpoint of an unknown model_type, by names alone: nothing is woven."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from textwrap import dedent
from typing import Any

from generator.checkpoint.problems import unknown
from generator.errors import LoomError
from generator.recipe.library import Library
from generator.recipe.recipe import Recipe, lineage_of, said, select


@dataclass(frozen=True)
class Names:
    """What the fragments of a family say of checkpoints.

    Attributes:
        completed: strings in statements, among them the settings that get a value where they are left out.
        sizes, structure: the settings that become fields of Config, and those that a package is woven for.
        tensors: with {} for numbers.
    """

    completed: set[str] = field(default_factory=set)
    sizes: set[str] = field(default_factory=set)
    structure: set[str] = field(default_factory=set)
    tensors: set[str] = field(default_factory=set)


def nearest_family(library: Library, target: str, hf: dict[str, Any], tensors: set[str]) -> str:
    """The family that a checkpoint differs least from: in settings and, where they are known, in tensors.

    Of several the one that builds on the fewest others, and then the one whose model_type is spelt most alike.

    Args:
        tensors: names, with {} for numbers; empty where they are not known.
    """
    lineages = {name: lineage_of(name, library) for name in library.architectures()}
    first: dict[str, str] = {}  # of each model_type
    for name in sorted(lineages, key=lambda name: len(lineages[name])):
        first.setdefault(said(lineages[name], "model_type"), name)

    def distance(model_type: str) -> tuple[float, ...]:
        try:
            recipe = select(first[model_type], target, library)
        except LoomError:  # it does not go with the target
            return (float("inf"),)
        names = _names(recipe)
        neutral = {setting for table in recipe.neutral for setting in table.names}
        known = names.completed | names.sizes | names.structure | neutral
        others = sum(1 for _ in unknown(hf, known))
        missing = sum(1 for setting in names.sizes - names.completed if hf.get(setting) is None)
        apart = len(tensors ^ names.tensors) if tensors else 0
        alike = difflib.SequenceMatcher(None, model_type, hf["model_type"]).ratio()
        return others + missing + apart, len(recipe.lineage), -alike

    return first[min(first, key=distance)]


def _names(recipe: Recipe) -> Names:
    splices = [splice for fragment in recipe.fragments for splice in fragment.splices if splice.point[:3] == "hf."]
    replaced, found = {splice.point for splice in splices}, Names()
    for splice in splices:
        for node in _walk(ast.parse(dedent(splice.body.text)), replaced):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.completed.add(node.value)
            elif isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple):
                words = [_word(word, recipe) for word in node.value.elts]
                kind = found.sizes if len(words) == 2 else found.tensors if "->" in words[2] else found.structure
                kind.add(words[1] if kind is found.tensors else words[0])
    return found


def _walk(node: ast.AST, replaced: set[str]) -> Iterator[ast.AST]:
    """The nodes below one: none below a `yield`, or below a point whose statements a splice replaces."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.With) and replaced & {ast.unparse(it).split("'")[1] for it in child.items}:
            continue
        yield child
        if not isinstance(child, ast.Yield):
            yield from _walk(child, replaced)


def _word(node: ast.expr, recipe: Recipe) -> str:
    """A text as it stands, or as a setting of the weaver says it."""
    match node:
        case ast.Call(func=ast.Name("setting"), args=[ast.Constant(str(name))]):
            return str(recipe.settings.get(name, ""))
        case ast.Constant(value):
            return str(value)
    return ""
