"""Weaving: a pure function from an architecture and a target to the files of a package."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import replace

from generator import sourcemap
from generator.config import check_fields, merge_fields
from generator.layout import file_of, lay_out
from generator.library import Library
from generator.package import Package
from generator.parts import Provider, Splice
from generator.recipe import Recipe, select
from generator.render import render_files
from generator.traced import Traced
from generator.weave.fill import fill
from generator.weave.link import collect
from generator.weave.splice import weave_splices
from generator.weave.thread import thread, threaded_names


def weave(architecture: str, target: str, library: Library, without: Collection[str] = ()) -> Package:
    """Weaves one package.

    Args:
        architecture, target: names in the library.
        library: every source text; nothing else is read.
        without: fragments to leave out of what the architecture and the target select.

    Returns:
        The package without gen.lock and gen.map.

    Raises:
        LoomError: a mistake in the sources, with its place and what to do.
    """
    recipe = select(architecture, target, library, without)
    settings = recipe.settings
    definitions = {
        key: replace(definition, text=fill(definition.text, settings))
        for key, definition in collect(recipe.fragments, lambda fragment: file_of(fragment, recipe)).items()
    }
    splices, providers = _splices(recipe), _providers(recipe)
    threaded = threaded_names(definitions.values(), splices, providers)
    definitions, needs = weave_splices(definitions, splices, threaded)
    tests = {key: definition for key, definition in definitions.items() if key.startswith("tests/")}
    program = {key: definition for key, definition in definitions.items() if key not in tests}
    program, fields = thread(program, providers, needs), merge_fields(recipe)
    check_fields(program.values(), fields, lambda: library.everything)
    layout = lay_out(recipe, {**program, **tests}, fields)
    rendered, templates = render_files(recipe, layout, fields)
    files = {**{path: text.text for path, text in layout.texts.items()}, **rendered}
    origins = {path: sourcemap.segments(text) for path, text in layout.texts.items()}
    return Package(
        name=recipe.name,
        architecture=architecture,
        target=target,
        files=dict(sorted(files.items())),
        origins=dict(sorted(origins.items())),
        inputs=_inputs(recipe, templates),
    )


def _splices(recipe: Recipe) -> list[Splice]:
    return [
        replace(splice, body=fill(splice.body, recipe.settings))
        for fragment in recipe.fragments
        for splice in fragment.splices
    ]


def _providers(recipe: Recipe) -> list[Provider]:
    return [
        replace(provider, body=fill(provider.body, recipe.settings), result=_filled(provider, recipe.settings))
        for fragment in recipe.fragments
        for provider in fragment.providers
    ]


def _filled(provider: Provider, settings: dict[str, object]) -> Traced:
    """What a provider returns: an expression, which is filled as a statement."""
    opening = Traced.insert("_ = ", provider.origin)
    return fill(opening + provider.result, settings)[len(opening.text) :]


def _inputs(recipe: Recipe, templates: list[str]) -> dict[str, str]:
    """The files that took part, with the SHA-256 of each."""
    files = (*recipe.lineage, recipe.target_file, recipe.package_file)
    paths = [*(f.path for f in files), *(f.path for f in recipe.fragments), *templates]
    return {path: hashlib.sha256(recipe.library.files[path].encode()).hexdigest() for path in sorted(set(paths))}
