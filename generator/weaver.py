"""Weaving: a pure function from an architecture and a target to the files of a package."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Collection
from dataclasses import replace

from generator.code import sourcemap
from generator.code.bindings import free_names
from generator.code.traced import Traced
from generator.errors import LoomError
from generator.language.fragment import Fragment
from generator.language.parts import Definition, Provider, Splice
from generator.package.config import check_fields, merge_fields
from generator.package.layout import file_of, lay_out, undefined_name
from generator.package.package import Package
from generator.package.render import check_files, render_files
from generator.recipe.library import Library
from generator.recipe.parts import ALL
from generator.recipe.recipe import Recipe, select
from generator.recipe.stated import apply_statements
from generator.thread.thread import thread, threaded_names
from generator.weave.adapt import Need
from generator.weave.count import count_layers
from generator.weave.fill import fill
from generator.weave.layers import check_given, write_out
from generator.weave.link import collect
from generator.weave.points import find_points
from generator.weave.specialise import specialise
from generator.weave.splice import weave_splices


def weave(
    architecture: str, target: str, library: Library, without: Collection[str] = (), parts: Collection[str] = (ALL,)
) -> Package:
    """Weaves one package.

    Args:
        architecture, target: names in the library.
        library: every source text; nothing else is read.
        without: fragments to leave out of what the architecture and the target select.
        parts: what the package can do besides training, "all" for whatever there is.

    Returns:
        The package without gen.lock and gen.map.
    """
    try:
        return _weave(architecture, target, library, without, parts)
    except RecursionError:
        fragments = select(architecture, target, library, without, parts).fragments
        depths = {fragment.path: _depth(library.files[fragment.path]) for fragment in fragments}
        path = max(depths, key=lambda path: depths[path][0])
        remedy = "Write it flatter: a table or a loop in place of many branches."
        raise LoomError("nested too deeply", f"{path}:{depths[path][1]}", remedy) from None


def _weave(
    architecture: str, target: str, library: Library, without: Collection[str], parts: Collection[str]
) -> Package:
    recipe = apply_statements(select(architecture, target, library, without, parts))
    fragments = {fragment.name: _filled(fragment, recipe) for fragment in recipe.fragments}
    splices = [splice for fragment in fragments.values() for splice in fragment.splices]
    providers = _provided(fragments.values(), list(recipe.package_file.data.folders))
    every = [definition for fragment in fragments.values() for definition in fragment.definitions]
    threaded = threaded_names(every, splices, providers)

    def spliced(chosen: list[Fragment], without: frozenset[str]) -> tuple[dict[str, Definition], list[Need]]:
        definitions, splices = _collected([fragments[f.name] for f in chosen], without, recipe)
        return weave_splices(definitions, splices, threaded, lambda splice: _host_of(splice, chosen, recipe))

    made = specialise(recipe, providers, spliced)
    definitions, needs, several = write_out(made.definitions, recipe.pattern, made.blocks, threaded)
    tests = {key: definition for key, definition in definitions.items() if key.startswith("tests/")}
    program = {key: definition for key, definition in definitions.items() if key not in tests}
    imports = {fragment.path: fragment.imports for fragment in fragments.values()}
    fields = merge_fields(recipe)
    try:
        program = thread(program, made.providers, [*made.needs, *needs], imports, several, recipe.pattern.arguments)
    except LoomError as error:  # values cannot pass through a role that no selected fragment plays either
        raise undefined_name(recipe, {**program, **tests}, fields) or error from None
    check_given(program, recipe.pattern, made.blocks)
    check_fields(program.values(), fields, lambda: library.everything)
    layout = lay_out(recipe, {**program, **tests}, fields)
    rendered, templates = render_files(recipe, layout, fields)
    files = {**{path: text.text for path, text in layout.texts.items()}, **rendered}
    check_files(files, layout.texts, recipe.merged("templates"))
    origins = {path: sourcemap.segments(text) for path, text in layout.texts.items()}
    return Package(
        name=recipe.name,
        architecture=architecture,
        target=target,
        parts=tuple(sorted(parts)),
        files=dict(sorted(files.items())),
        origins=dict(sorted(origins.items())),
        inputs=_inputs(recipe, templates),
    )


def weave_some(recipe: Recipe, roots: Collection[str]) -> dict[str, Definition]:
    """Weaves single definitions and what they use, neither threaded nor laid out: a few hundredths of a package's time.

    Args:
        roots: names of definitions; those that no selected fragment has are passed over.

    Returns:
        name -> definition, each after what it uses.
    """
    recipe = apply_statements(recipe)
    program = [fragment for fragment in recipe.fragments if fragment.folder != "tests"]
    of = {definition.name: (fragment, definition) for fragment in program for definition in fragment.definitions}
    splices = {(f.name, n): (f, splice) for f in recipe.fragments for n, splice in enumerate(f.splices)}
    done: dict[str, Definition] = {}
    waiting: set[str] = set()

    def visit(name: str) -> None:
        if name in waiting or name not in of:
            return
        waiting.add(name)
        fragment, definition = of[name]
        filled = _filled(replace(fragment, definitions=(definition,), splices=(), providers=()), recipe).definitions[0]
        found, text = dict[tuple[str, int], Splice](), filled.text.text
        while here := [key for key in splices if key not in found and f'point("{splices[key][1].point}"' in text]:
            for key in here:
                host, splice = splices[key]
                alone = replace(host, definitions=(), splices=(replace(splice, optional=True),), providers=())
                found[key] = _filled(alone, recipe).splices[0]
            text = "".join(found[key].body.text for key in here)  # a splice may have points too
        chosen = [found[key] for key in splices if key in found]
        definition = weave_splices({name: filled}, chosen)[0][name]
        for used in free_names(definition.text.text):
            visit(used)
        done[name] = definition

    for root in roots:
        visit(root)
    return done


def _depth(text: str) -> tuple[int, int]:
    """How deeply nodes stand in each other in a module, and the line of the outermost one of the deepest."""
    deepest, line = 0, 1
    for statement in ast.parse(text).body:
        layer, count = list[ast.AST]([statement]), 0
        while layer:
            layer, count = [child for node in layer for child in ast.iter_child_nodes(node)], count + 1
        if count > deepest:
            deepest, line = count, statement.lineno
    return deepest, line


def _filled(fragment: Fragment, recipe: Recipe) -> Fragment:
    """A fragment with its settings filled and its layers counted."""

    def filled(text: Traced) -> Traced:
        return count_layers(fill(text, recipe.settings), fragment.name, recipe.pattern)

    def result(provider: Provider) -> Traced:  # an expression, which is filled as a statement
        opening = Traced.insert("_ = ", provider.origin)
        return filled(opening + provider.result)[len(opening.text) :]

    return replace(
        fragment,
        definitions=tuple(replace(d, text=filled(d.text)) for d in fragment.definitions),
        splices=tuple(replace(s, body=filled(s.body)) for s in fragment.splices),
        providers=tuple(replace(p, body=filled(p.body), result=result(p)) for p in fragment.providers),
    )


def _host_of(splice: Splice, chosen: list[Fragment], recipe: Recipe) -> str:
    """Where the point is that no chosen fragment has, and what stands in that fragment's place.

    An optional splice misses the point only if its fragment has no splice for what stands there.
    """
    said = {other.point for fragment in chosen if fragment.name == splice.fragment for other in fragment.splices}
    for host in recipe.library.everything:
        for name in (d.name for d in host.definitions if splice.point in find_points(d.name, d.text)):
            others = (f for f in chosen if name in (d.name for d in f.definitions))
            other = next((f for f in others if file_of(f, recipe) == file_of(host, recipe)), None)
            points = {point for d in other.definitions for point in find_points(d.name, d.text)} if other else set()
            if splice.optional and (other in (None, host) or said & points):
                continue
            if host.name in recipe.pattern.kind_fragments:
                return f"It is a point of {host.name}, which only some kinds of layer select: splice in these alone."
            instead = f"; {other.name} stands in its place: repeat the point there" if other else ""
            return f"It is a point of {host.name}, which is not selected{instead}."
    return ""


def _provided(fragments: Collection[Fragment], folders: list[str]) -> list[Provider]:
    """The providers of all fragments, those of a site for what is alike too, in the order that their values get.

    It is the same whatever the order of selection: folder by folder, what callers may hand in first, what each layer
    has for itself last, then by name.
    """
    providers = [provider for fragment in fragments for provider in fragment.providers]
    of_layers = {provider.value for provider in providers if provider.per_layer}

    def place(provider: Provider) -> tuple[int, bool, bool, str]:
        folder = provider.fragment.split("/")[0]
        return [*folders, folder].index(folder), provider.value in of_layers, not provider.optional, provider.value

    providers.sort(key=place)
    alike = [pair for fragment in fragments for pair in fragment.alike]
    own = {(provider.site, provider.value) for provider in providers}
    return providers + [
        replace(provider, site=function)
        for function, site in alike
        for provider in providers
        if provider.site == site and not provider.optional and (function, provider.value) not in own
    ]


def _collected(
    fragments: list[Fragment], without: frozenset[str], recipe: Recipe
) -> tuple[dict[str, Definition], list[Splice]]:
    """The definitions and splices of some fragments; without some definitions, splices for their points go too."""
    kept = [
        replace(f, definitions=tuple(d for d in f.definitions if d.name not in without)) if without else f
        for f in fragments
    ]
    splices = [replace(s, optional=s.optional or bool(without)) for f in kept for s in f.splices]
    return collect(kept, lambda fragment: file_of(fragment, recipe)), splices


def _inputs(recipe: Recipe, templates: list[str]) -> dict[str, str]:
    """The files that took part, with the SHA-256 of each."""
    files = [f.path for f in recipe.lineage] + [recipe.target_file.path, recipe.package_file.path]
    paths = [*files, *(f.path for f in recipe.fragments), *templates]
    return {path: hashlib.sha256(recipe.library.files[path].encode()).hexdigest() for path in sorted(set(paths))}
