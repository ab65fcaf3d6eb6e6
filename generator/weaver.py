"""Weaving: a pure function from an architecture and a target to the files of a package, as a list of passes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from generator.code import sourcemap
from generator.code.traced import Origin, Traced
from generator.errors import LoomError
from generator.language.fragment import Fragment
from generator.language.grammar import find_depth
from generator.language.parts import Definition, Field, Provider
from generator.package.config import check_fields, merge_fields
from generator.package.layout import Layout, LinkedFiles, file_of, lay_out, link_files, undefined_name
from generator.package.package import Package
from generator.package.render import check_files, render_files
from generator.recipe.library import Library
from generator.recipe.order import order_splices
from generator.recipe.recipe import Recipe, select
from generator.recipe.schema import ALL
from generator.recipe.stated import apply_statements
from generator.thread.thread import thread
from generator.tidy.tidy import RULES, indentation, tidy
from generator.weave.adapt import Need
from generator.weave.fill import fill_fragment
from generator.weave.layers import check_layer_arguments, unroll_layers
from generator.weave.link import collect_definitions
from generator.weave.points import explain_missing, reads_checkpoints
from generator.weave.specialise import specialise
from generator.weave.splice import weave_splices


@dataclass
class Weaving:
    """A package between two passes.

    Attributes:
        recipe: its fragments are rewritten until their definitions are woven.
        providers: of all fragments, in the order in which functions take their values.
        definitions: key -> definition, from the first pass that weaves them on.
        needs: the values that threading must bring to statements.
        blocks: kind of layer -> the name of its class.
        sequential: the functions that call several layers one after the other.
        fields: the members of `Config`.
        linked: the texts of each file, not formatted.
        layout: the Python files.
        rendered: the other files, and the templates that they were made from.
    """

    recipe: Recipe
    providers: list[Provider] = field(default_factory=list)
    definitions: dict[str, Definition] = field(default_factory=dict)
    needs: list[Need] = field(default_factory=list)
    blocks: dict[str, str] = field(default_factory=dict)
    sequential: set[str] = field(default_factory=set)
    fields: list[Field] = field(default_factory=list)
    linked: LinkedFiles | None = None
    layout: Layout | None = None
    rendered: tuple[dict[str, str], list[str]] = field(default_factory=lambda: ({}, []))

    def texts(self) -> list[tuple[str, str, Traced]]:
        """Returns the present texts: the file that each belongs to, its name ('' for a whole file), and the text."""
        if self.layout:
            templates = self.recipe.merged("templates")
            other = {path: Traced.insert(text, Origin(templates[path], 1)) for path, text in self.rendered[0].items()}
            return [(path, "", text) for path, text in (self.layout.texts | other).items()]
        if self.linked:
            return [(path, "", Traced.join(parts)) for path, parts in self.linked.texts.items()]
        files = {fragment.name: file_of(fragment, self.recipe) for fragment in self.recipe.fragments}
        if self.definitions:
            return [(files[made.fragment], key, made.text) for key, made in self.definitions.items()]
        return [
            (files[fragment.name], name, text)
            for fragment in self.recipe.fragments
            for name, text in (
                *((definition.name, definition.text) for definition in fragment.definitions),
                *((splice.point, splice.body) for splice in fragment.splices),
                *((provider.site, provider.body + provider.returned) for provider in fragment.providers),
            )
        ]


def _state(package: Weaving) -> None:
    """Writes the order and what the architecture states about its checkpoints into the splices of its fragments."""
    states = apply_statements if reads_checkpoints(package.recipe) else order_splices
    package.recipe = states(package.recipe)


def _fill(package: Weaving) -> None:
    """Puts literals in place of settings, decides the branches on them, and counts layers."""
    recipe = package.recipe
    package.recipe = replace(recipe, fragments=tuple(fill_fragment(fragment, recipe) for fragment in recipe.fragments))


def _splice(package: Weaving) -> None:
    """Puts splices at their points, in the definitions of a layer once for each kind of layer."""
    recipe = package.recipe
    package.providers = _in_threading_order(recipe.fragments, list(recipe.package_file.data.folders))

    def splice_all(chosen: list[Fragment], without: frozenset[str]) -> tuple[dict[str, Definition], list[Need]]:
        kept = [replace(f, definitions=tuple(d for d in f.definitions if d.name not in without)) for f in chosen]
        definitions = collect_definitions(kept, lambda fragment: file_of(fragment, recipe))
        # the points of a definition that is left out are missing too
        splices = [
            replace(s, optional=s.optional or bool(without), own=f.path not in recipe.library.builtin)
            for f in kept
            for s in f.splices
        ]
        return weave_splices(
            definitions, splices, lambda splice: explain_missing(splice, chosen, recipe, file_of, without)
        )

    woven = specialise(recipe, package.providers, splice_all)
    package.definitions, package.needs, package.providers = woven.definitions, woven.needs, woven.providers
    package.blocks = woven.blocks


def _layers(package: Weaving) -> None:
    """Writes out the loops over layers."""
    package.definitions, needs, package.sequential = unroll_layers(
        package.definitions, package.recipe.pattern, package.blocks
    )
    package.needs = [*package.needs, *needs]


def _thread(package: Weaving) -> None:
    """Carries threaded values through the calls of the program; tests have none."""
    recipe, pattern = package.recipe, package.recipe.pattern
    package.fields = merge_fields(recipe)
    tests = {key: definition for key, definition in package.definitions.items() if key.startswith("tests/")}
    program = {key: definition for key, definition in package.definitions.items() if key not in tests}
    imports = {fragment.path: fragment.imports for fragment in recipe.fragments}
    try:
        program = thread(program, package.providers, package.needs, imports, package.sequential, pattern.arguments)
    except LoomError as error:  # values cannot pass through a role that no selected fragment plays either
        raise undefined_name(recipe, {**program, **tests}, package.fields) or error from None
    check_layer_arguments(program, pattern, package.blocks)
    check_fields(program.values(), package.fields, lambda: recipe.library.everything)
    package.definitions = program | tests


def _tidy(package: Weaving) -> None:
    """Tidies what is left where fragments meet; of tests, which say what is expected, only what they return."""

    indent_of = indentation(package.recipe.library.files)

    def tidied(key: str, text: Traced) -> Traced:
        return tidy(text, indent_of, RULES[:1] if key.startswith("tests/") else RULES)

    package.definitions = {key: replace(made, text=tidied(key, made.text)) for key, made in package.definitions.items()}


def _link(package: Weaving) -> None:
    """Resolves names, leaves out what nothing reaches, and sorts definitions and imports into files."""
    package.linked = link_files(package.recipe, package.definitions, package.fields)


def _format(package: Weaving) -> None:
    """Formats the texts of each file with black, and joins them under its header."""
    assert package.linked
    package.layout = lay_out(package.recipe, package.linked)


def _render(package: Weaving) -> None:
    """Renders the files that are not Python, and parses every file as what it is."""
    assert package.layout
    package.rendered = render_files(package.recipe, package.layout, package.fields)
    files = {path: text.text for path, _, text in package.texts()}
    check_files(files, package.layout.texts, package.recipe.merged("templates"))


PASSES: dict[str, Callable[[Weaving], None]] = {  # in the order in which they run
    "state": _state,
    "fill": _fill,
    "splice": _splice,
    "layers": _layers,
    "thread": _thread,
    "tidy": _tidy,
    "link": _link,
    "format": _format,
    "render": _render,
}


def run_passes(recipe: Recipe, last: str = "render") -> Weaving:
    """Runs the passes up to one of them."""
    package, names = Weaving(recipe), list(PASSES)
    try:
        for name in names[: names.index(last) + 1]:
            PASSES[name](package)
    except RecursionError:
        depths = {fragment.path: find_depth(recipe.library.files[fragment.path]) for fragment in recipe.fragments}
        path = max(depths, key=lambda path: depths[path][0])
        remedy = "Write it flatter: a table or a loop in place of many branches."
        raise LoomError("nested too deeply", f"{path}:{depths[path][1]}", remedy) from None
    return package


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
    package = run_passes(select(architecture, target, library, without, parts))
    recipe, texts = package.recipe, package.layout.texts if package.layout else {}
    rendered, templates = package.rendered
    sources = {file.path for file in recipe.lineage} | {fragment.path for fragment in recipe.fragments}
    sources |= {recipe.target_file.path, recipe.package_file.path, recipe.recipes.path, *templates}
    return Package(
        name=recipe.name,
        architecture=architecture,
        target=target,
        parts=tuple(sorted(parts)),
        files=dict(sorted(({path: text.text for path, text in texts.items()} | rendered).items())),
        origins={path: sourcemap.segments(texts[path]) for path in sorted(texts)},
        inputs={path: hashlib.sha256(library.files[path].encode()).hexdigest() for path in sorted(sources)},
    )


def _in_threading_order(fragments: Collection[Fragment], folders: list[str]) -> list[Provider]:
    """Returns the providers of all fragments, and copies of them for sites that are declared alike.

    The order does not depend on that of selection: folder by folder, values that callers may hand in first, values
    that each layer has for itself last, then by name.
    """
    providers = [provider for fragment in fragments for provider in fragment.providers]
    of_layers = {provider.value for provider in providers if provider.per_layer}

    def rank(provider: Provider) -> tuple[int, bool, bool, str]:
        folder = provider.fragment.split("/")[0]
        return [*folders, folder].index(folder), provider.value in of_layers, not provider.optional, provider.value

    providers.sort(key=rank)
    present = {(provider.site, provider.value) for provider in providers}
    return providers + [
        replace(provider, site=function)
        for fragment in fragments
        for function, site in fragment.alike
        for provider in providers
        if provider.site == site and not provider.optional and (function, provider.value) not in present
    ]
