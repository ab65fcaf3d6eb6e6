"""Lays definitions out into files, in reading order, each file with its header, docstring and imports."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from generator import __version__
from generator.code.edits import Edits
from generator.code.format import format_python
from generator.code.traced import Origin, Traced
from generator.code.tree import TracedTree
from generator.errors import LoomError, short
from generator.language.fragment import Fragment
from generator.language.parts import Definition, Field, Import
from generator.package.circles import check_import_circles
from generator.package.config import write_values
from generator.package.imports import make_import, name_order, write_imports
from generator.package.order import names_at_definition, topological_order
from generator.package.templating import render_text
from generator.recipe.recipe import Recipe
from generator.weave.link import Linker, References, reachable, role_imports

CONFIG = "config.py"


@dataclass(frozen=True)
class LinkedFiles:
    """Python files: path -> import block and definitions in reading order, and the same of them as a `Layout`."""

    texts: dict[str, list[Traced]]
    modules: dict[str, tuple[str, ...]]
    fragments: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Layout:
    """The Python files of a package, by path.

    Attributes:
        texts: formatted.
        modules: top-level modules outside the package that each file imports.
        fragments: names of the fragments in each file, in order.
    """

    texts: dict[str, Traced]
    modules: dict[str, tuple[str, ...]]
    fragments: dict[str, tuple[str, ...]]


def file_of(fragment: Fragment, recipe: Recipe) -> str:
    """Returns the file for a fragment's definitions, by its name or else its folder."""
    folders = recipe.package_file.data.folders
    if fragment.folder not in folders:
        remedy = f"Add `{fragment.folder} = ...` under [folders], or move the fragment."
        raise LoomError(f"no file for fragments in {fragment.folder}/", recipe.package_file.path, remedy)
    file = folders.get(fragment.name) or folders[fragment.folder]
    return f"{file}{fragment.short}.py" if file.endswith("/") else file


class _Links:
    """The texts of a package by key, with their files and references.

    Args:
        definitions: key -> woven definition.
        fields: the members of Config, filled.

    Attributes:
        config_texts: those of config.py.
        exports, reachable: keys; the roots are exports, command lines and tests.
    """

    def __init__(self, recipe: Recipe, definitions: dict[str, Definition], fields: list[Field]):
        values = write_values(recipe, fields, definitions.get("Chip"))
        keys = {name: f"{CONFIG}:{name}" for name in values}
        self.config_texts = {keys[name]: text for name, text in values.items()}
        self.texts = {**{key: definition.text for key, definition in definitions.items()}, **self.config_texts}
        files = {fragment.name: file_of(fragment, recipe) for fragment in recipe.fragments}
        self.files = {key: files[definition.fragment] for key, definition in definitions.items()}
        self.files |= dict.fromkeys(self.config_texts, CONFIG)
        ambient = Import("dataclasses", "", "dataclasses", recipe.package_file.origin("config", "documentation"))
        self._linker = Linker(definitions, recipe.fragments, lambda: recipe.library.everything, keys, (ambient,))
        self._references: dict[str, References] = {}
        self.exports = [keys.get(name, name) for name in recipe.package_file.data.exports]
        for name in self.exports:
            if name not in self.texts:
                where = str(recipe.package_file.origin("exports"))
                raise LoomError(f"the package exports {name}, which no selected fragment defines", where, "Remove it.")
        roots = [key for key in definitions if key.endswith(":__main__") or key.startswith("tests/")]
        file = recipe.package_file.data
        named = [*file.roots, *(name for part in recipe.parts for name in file.parts[part].roots)]
        self.reachable = reachable([*self.exports, *named, *roots], self.references)

    def references(self, key: str) -> References:
        if key not in self._references:
            self._references[key] = self._linker.link(self.texts[key], self.files[key])
        return self._references[key]


def undefined_name(recipe: Recipe, definitions: dict[str, Definition], fields: list[Field]) -> LoomError | None:
    """Returns the error of a name that only fragments outside the selection define, if there is one."""
    try:
        _Links(recipe, definitions, fields)
    except LoomError as error:
        return error if error.candidates else None
    return None


def link_files(recipe: Recipe, definitions: dict[str, Definition], fields: list[Field]) -> LinkedFiles:
    """Sorts the definitions that the roots reach into files, with the imports that they need.

    Args:
        definitions: key -> woven definition.
        fields: the members of Config, filled.
    """
    links = _Links(recipe, definitions, fields)
    keys_of: dict[str, list[str]] = {CONFIG: []}
    for key in _reading_order(links, definitions):
        keys_of.setdefault(links.files[key], []).append(key)
    tables = [key for key in links.config_texts if key in links.reachable]
    keys_of[CONFIG] = _above_their_tables(keys_of[CONFIG], tables, links)
    folders, builtin = recipe.package_file.data.folders, recipe.library.builtin
    check_import_circles(keys_of, links.files, links.texts, links.references, folders, builtin)
    paths = {fragment.path: fragment.name for fragment in recipe.fragments}
    unformatted, modules, fragments = {}, {}, {}
    for file, keys in keys_of.items():
        outside = [item for key in keys for item in links.references(key).imports]
        inside = [
            make_import(file, links.files[used], used, links.texts[key].origin_at(0))
            for key in keys
            for used in links.references(key).uses
            if links.files[used] != file and used not in links.references(key).late
        ]
        texts = [_with_late_imports(links.texts[key], file, links, key) for key in keys]
        fragments[file] = tuple(dict.fromkeys(paths[path] for text in texts for path in text.paths() if path in paths))
        unformatted[file] = [write_imports([*outside, *inside]), *texts]
        modules[file] = tuple(sorted({item.module.split(".")[0] for item in outside}))
    unformatted["__init__.py"] = _write_init(recipe, links)
    return LinkedFiles(unformatted, modules, fragments)


def _above_their_tables(keys: list[str], tables: list[str], links: _Links) -> list[str]:
    """Returns the keys of config.py: a class that one table alone needs, such as Recipe, stands above that table."""
    users = {key: [table for table in tables if key in links.references(table).uses] for key in keys}
    moved = {key: uses[0] for key, uses in users.items() if len(uses) == 1 and "class " in links.texts[key].text}
    ordered = [key for key in keys if key not in moved]
    for table in tables:
        ordered += [*(key for key in keys if moved.get(key) == table), table]
    return ordered


def _with_late_imports(text: Traced, file: str, links: _Links, key: str) -> Traced:
    """Returns a definition in which the imports of roles are from the files that define them."""
    keys = {used.split(":")[-1]: used for used in links.references(key).late}
    edits = Edits(source := TracedTree(text))
    for first, *others in role_imports(text.text):
        imports = [
            make_import(file, links.files[keys[alias.name]], keys[alias.name], source.origin(node))
            for node in (first, *others)
            for alias in node.names
            if alias.name in keys and links.files[keys[alias.name]] != file  # a splice may have replaced its uses
        ]
        edits.put(first, edits.copy(write_imports(imports)))
        for node in others:
            edits.drop(node)
    return edits.made()


def lay_out(recipe: Recipe, linked: LinkedFiles) -> Layout:
    """Formats the texts of each file, and joins them under its header and docstring."""
    formatted = iter(
        format_python([text for parts in linked.texts.values() for text in parts], recipe.library.formatted)
    )
    files = {
        file: _join_file(
            recipe, file, next(formatted), [next(formatted) for _ in parts[1:]], linked.fragments.get(file, ())
        )
        for file, parts in linked.texts.items()
    }
    for folder in sorted({file.rsplit("/", 1)[0] for file in linked.modules if "/" in file}):
        path = f"{folder}/__init__.py"
        files[path] = Traced.join([write_header(recipe), write_docstring(recipe, path, ())])
    return Layout(files, linked.modules, linked.fragments)


def _reading_order(links: _Links, definitions: dict[str, Definition]) -> list[str]:
    """Returns the keys of reachable definitions: fragments in topological order, each in its own, `__main__` last.

    A definition that another one needs when Python defines it comes first in any case.
    """
    reached = set(links.reachable)
    members: dict[str, list[str]] = {}
    for key, definition in definitions.items():
        if key in reached:
            members.setdefault(definition.fragment, []).append(key)

    def used_fragments(fragment: str) -> Iterator[str]:
        for key in members[fragment]:
            yield from (definitions[used].fragment for used in links.references(key).uses if used in definitions)

    def place(key: str) -> tuple[bool, int]:
        return key.endswith(":__main__"), definitions[key].text.origin_at(0).line

    def used_at_definition(key: str) -> Iterator[str]:
        names, uses = names_at_definition(definitions[key].text.text), links.references(key).uses
        yield from (used for used in uses if used in definitions and used.split(":")[-1] in names)

    roots = [definitions[key].fragment for key in links.reachable if key in definitions]
    keys = [key for name in topological_order(used_fragments, roots) for key in sorted(members[name], key=place)]
    return topological_order(used_at_definition, keys)


def write_header(recipe: Recipe) -> Traced:
    """Returns the comment line at the top of every Python file."""
    text = f"# Code generated by gen {__version__} from {recipe.architecture} x {recipe.target}."
    text += " To change a line, change its fragment: see gen explain.\n"
    return Traced.insert(text, Origin(recipe.architecture_file.path, 1))


def _join_file(recipe: Recipe, file: str, imports: Traced, texts: list[Traced], fragments: tuple[str, ...]) -> Traced:
    """Returns a file, with blank lines between formatted texts: values that are adjacent in a fragment stay so."""
    parts = [write_header(recipe), write_docstring(recipe, file, fragments)]
    if imports.text:
        parts += [_blank(imports, 1), imports]
    above = None  # the text above, if it is a value
    for number, text in enumerate(texts):
        is_value = not any(line.startswith(("def ", "class ", "@", "async ")) for line in text.text.splitlines())
        if above and is_value and _is_next_line(above, text):
            count = 0
        else:
            count = 1 if is_value and (above or number == 0) else 2
        parts += [_blank(text, count), text]
        above = text if is_value else None
    return Traced.join(parts)


def _is_next_line(above: Traced, below: Traced) -> bool:
    """Returns whether two texts are adjacent in a source file."""
    end, start = above.origin_at(len(above.text) - 1), below.origin_at(0)
    return (end.path, end.line + 1) == (start.path, start.line)


def _blank(text: Traced, count: int) -> Traced:
    return Traced.insert("\n" * count, text.origin_at(0))


def write_docstring(recipe: Recipe, file: str, fragments: tuple[str, ...]) -> Traced:
    """Returns the module docstring of a file: that of the package file, else the title of its first fragment."""
    table = recipe.merged("documentation")
    if file in table:
        origin = recipe.origin("documentation", file)
        opening = recipe.package_file.text.split("\n")[origin.line - 1].rstrip()
        first = origin.line + opening.endswith(('"""', "'''"))  # a multiline string may begin on the next line
        rendered = render_text(table[file], origin.path, recipe, first).strip()
        lines = (textwrap.fill(line, 120) if len(line) > 117 else line for line in f'"""{rendered}'.split("\n"))
        text = "\n".join(lines).removeprefix('"""')
    elif fragments:
        fragment = next(f for f in recipe.fragments if f.name == fragments[0])
        origin, text = Origin(fragment.path, 1), f"{fragment.title}."
    else:
        remedy = f'Add `"{file}" = "..."` under [documentation].'
        raise LoomError(f"no documentation for {file}", str(recipe.package_file.origin("documentation")), remedy)
    if '"""' in text or "\\" in text or "\0" in text or text.endswith('"'):
        remedy = "Leave out backslashes, three quotes, and quotes at the end."
        raise LoomError(f"{short(repr(text))} cannot be a docstring", str(origin), remedy)
    quotes = f'"""{text}\n"""\n' if "\n" in text else f'"""{text}"""\n'
    return Traced.insert(quotes, origin)


def _write_init(recipe: Recipe, links: _Links) -> list[Traced]:
    """Returns the imports of `__init__.py` and its `__all__`: the public names."""
    origin = recipe.package_file.origin("exports")
    imports = [make_import("__init__.py", links.files[key], key, origin) for key in links.exports]
    listed = ", ".join(f'"{item.name}"' for item in sorted(imports, key=lambda item: name_order(item.name)))
    return [write_imports(imports), Traced.insert(f"__all__ = [{listed}]\n", origin)]
