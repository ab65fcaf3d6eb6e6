"""Lays definitions out into files: the order that a reader wants, the header, the docstring, the imports."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from generator import __version__
from generator.code.caching import cached
from generator.code.format import format_python
from generator.code.traced import Origin, Traced
from generator.code.tree import module_of
from generator.errors import LoomError, short
from generator.language.fragment import Fragment
from generator.language.parts import Definition, Field, Import
from generator.package.config import architecture_value, config_class, presets_value
from generator.package.imports import import_block, reading_case
from generator.package.templating import render_text
from generator.recipe.recipe import Recipe
from generator.weave.link import Linker, References, origin_of, reachable

CONFIG = "config.py"


@dataclass(frozen=True)
class Layout:
    """Python files: path -> traced text, and what other files need to know of them.

    Attributes:
        texts: formatted.
        modules: top-level modules that each file imports from outside the package.
        fragments: names of the fragments in each file, in order.
    """

    texts: dict[str, Traced]
    modules: dict[str, tuple[str, ...]]
    fragments: dict[str, tuple[str, ...]]


def file_of(fragment: Fragment, recipe: Recipe) -> str:
    """Returns the file that a fragment's definitions go to, by its folder."""
    folders = recipe.package_file.data.folders
    if fragment.folder not in folders:
        remedy = f"Add `{fragment.folder} = ...` under [folders], or move the fragment."
        raise LoomError(f"no file for fragments in {fragment.folder}/", recipe.package_file.path, remedy)
    file = folders[fragment.folder]
    return f"{file}{fragment.short}.py" if file.endswith("/") else file


class _Links:
    """Texts of a package by key, and what each of them uses.

    Args:
        definitions: key -> woven definition.
        fields: the members of Config, filled.
    """

    def __init__(self, recipe: Recipe, definitions: dict[str, Definition], fields: list[Field]):
        extra = {name: f"{CONFIG}:{name}" for name in ("ARCHITECTURE", "Config", "PRESETS")}
        values = architecture_value(recipe), config_class(recipe, fields), presets_value(recipe, fields)
        self.made = dict(zip(extra.values(), values, strict=True))
        self.texts = {**{key: definition.text for key, definition in definitions.items()}, **self.made}
        files = {fragment.name: file_of(fragment, recipe) for fragment in recipe.fragments}
        self.files = {key: files[definition.fragment] for key, definition in definitions.items()}
        self.files |= dict.fromkeys(self.made, CONFIG)
        ambient = Import("dataclasses", "", "dataclasses", recipe.package_file.origin("config", "documentation"))
        self._linker = Linker(definitions, recipe.fragments, lambda: recipe.library.everything, extra, (ambient,))
        self._found: dict[str, References] = {}
        self.exports = [extra.get(name, name) for name in recipe.package_file.data.exports]
        for name in self.exports:
            if name not in self.texts:
                where = str(recipe.package_file.origin("exports"))
                raise LoomError(f"the package exports {name}, which no selected fragment defines", where, "Remove it.")
        own = [key for key in definitions if key.endswith(":__main__") or key.startswith("tests/")]
        self.reached = reachable([*self.exports, *own], self.of)

    def of(self, key: str) -> References:
        if key not in self._found:
            self._found[key] = self._linker.link(self.texts[key], self.files[key])
        return self._found[key]


def undefined_name(recipe: Recipe, definitions: dict[str, Definition], fields: list[Field]) -> LoomError | None:
    """Returns the error of a name that some fragment defines and no selected one, if there is one."""
    try:
        _Links(recipe, definitions, fields)
    except LoomError as error:
        return error if error.candidates else None
    return None


def lay_out(recipe: Recipe, definitions: dict[str, Definition], fields: list[Field]) -> Layout:
    """Places what the roots reach.

    Args:
        definitions: key -> woven definition.
        fields: the members of Config, filled.
    """
    links = _Links(recipe, definitions, fields)
    placed = {CONFIG: [key for key in links.made if key in links.reached]}
    for key in _in_reading_order(links, definitions):
        placed.setdefault(links.files[key], []).append(key)
    _check_circles(placed, links)
    raw, modules, named = {}, {}, {}
    for file, keys in placed.items():
        outside = [item for key in keys for item in links.of(key).imports]
        inside = [
            _import(file, links.files[used], used, links.texts[key].origin_at(0))
            for key in keys
            for used in links.of(key).uses
            if links.files[used] != file
        ]
        texts = [links.texts[key] for key in keys]
        named[file] = _fragments_in(texts, recipe)
        raw[file] = [import_block([*outside, *inside]), *texts]
        modules[file] = tuple(sorted({item.module.split(".")[0] for item in outside}))
    raw["__init__.py"] = _surface(recipe, links)
    formatted = iter(format_python([text for parts in raw.values() for text in parts]))  # in one go, which is fast
    made = {
        file: _file(recipe, file, next(formatted), [next(formatted) for _ in parts[1:]], named.get(file, ()))
        for file, parts in raw.items()
    }
    for folder in sorted({file.rsplit("/", 1)[0] for file in placed if "/" in file}):
        path = f"{folder}/__init__.py"
        made[path] = Traced.join([header(recipe, ()), documentation(recipe, path, ())])
    return Layout(made, modules, named)


def _in_reading_order(links: _Links, definitions: dict[str, Definition]) -> list[str]:
    """Fragments after those that they use; a fragment's definitions together, as it has them, `__main__` last."""
    reached = set(links.reached)
    members: dict[str, list[str]] = {}
    for key, definition in definitions.items():
        if key in reached:
            members.setdefault(definition.fragment, []).append(key)

    def used_by(fragment: str) -> Iterator[str]:
        for key in members[fragment]:
            yield from (definitions[used].fragment for used in links.of(key).uses if used in definitions)

    def place(key: str) -> tuple[bool, int]:
        return key.endswith(":__main__"), definitions[key].text.origin_at(0).line

    def run_by(key: str) -> Iterator[str]:
        """Yields what must be there when a definition is read; fragments may use each other in functions."""
        at_once = _names_at_once(definitions[key].text.text)
        yield from (used for used in links.of(key).uses if used in definitions and used.split(":")[-1] in at_once)

    fragments = _after(used_by, [definitions[key].fragment for key in links.reached if key in definitions])
    return _after(run_by, [key for fragment in fragments for key in sorted(members[fragment], key=place)])


def _after(needs: Callable[[str], Iterable[str]], names: list[str]) -> list[str]:
    """Returns names and what they need, each after what it needs as far as there is no circle."""
    ordered: dict[str, None] = {}
    seen: set[str] = set()

    def visit(name: str) -> None:
        if name not in seen:
            seen.add(name)
            for needed in needs(name):
                visit(needed)
            ordered[name] = None

    for name in names:
        visit(name)
    return list(ordered)


@cached
def _names_at_once(text: str) -> frozenset[str]:
    """Returns the names that a definition needs when it is made: annotations, defaults, decorators, bases."""
    names: set[str] = set()
    queue: list[ast.AST] = [module_of(text)]
    while queue:
        node = queue.pop()
        if isinstance(node, ast.Name):
            names.add(node.id)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            parts = [node.args, *getattr(node, "decorator_list", []), getattr(node, "returns", None)]
            queue += filter(None, parts)
        else:
            queue += ast.iter_child_nodes(node)
    return frozenset(names)


def _import(file: str, other: str, key: str, origin: Origin) -> Import:
    """Returns the import, in one file, of what another file of the package defines."""
    folder, name = file[: file.rfind("/") + 1], key.split(":")[-1]
    if folder and other.startswith(folder):
        file, other = file.removeprefix(folder), other.removeprefix(folder)
    dots = "." * (1 + file.count("/"))
    return Import(dots + other.removesuffix(".py").replace("/", "."), name, name, origin)


def _check_circles(placed: dict[str, list[str]], links: _Links) -> None:
    """Refuses files that import each other."""
    uses = {  # file -> other file -> a definition, and what it uses there
        file: {links.files[used]: (key, used) for key in keys for used in links.of(key).uses}
        for file, keys in placed.items()
    }
    try:
        TopologicalSorter({file: others.keys() - {file} for file, others in uses.items()}).prepare()
    except CycleError as error:
        circle = error.args[1][::-1]
        start = circle.index(min(circle))
        circle = [*circle[start:-1], *circle[: start + 1]]
        reasons = [(*uses[one][other], one) for one, other in pairwise(circle)]
        shown = ", ".join(f"{key} in {one} uses {used}" for key, used, one in reasons)
        key, used, _ = reasons[0]
        message = f"files import each other in a circle, {' -> '.join(circle)}: {shown}"
        where = str(origin_of(links.texts[key], used))
        raise LoomError(message, where, "Move a definition to a fragment of another folder.") from None


def _fragments_in(texts: Iterable[Traced], recipe: Recipe) -> tuple[str, ...]:
    by_path = {fragment.path: fragment.name for fragment in recipe.fragments}
    paths = dict.fromkeys(path for text in texts for path in text.paths())
    return tuple(by_path[path] for path in paths if path in by_path)


def header(recipe: Recipe, fragments: Iterable[str]) -> Traced:
    """Returns the comment lines at the top of every Python file."""
    origin = Origin(recipe.architecture_file.path, 1)
    made = f"# Code generated by gen {__version__} from {recipe.architecture} x {recipe.target}."
    first = f"{made} To change a line, change its fragment: see gen explain.\n"
    names = ", ".join(fragments)
    listed = textwrap.fill(
        f"Fragments: {names}.", 118, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
    )
    return Traced.insert(first + (f"{listed}\n" if names else ""), origin)


def _file(recipe: Recipe, file: str, imports: Traced, texts: list[Traced], fragments: tuple[str, ...]) -> Traced:
    """Returns a file of formatted texts."""
    parts = [header(recipe, fragments), documentation(recipe, file, fragments)]
    if imports.text:
        parts += [_blank(imports, 1), imports]
    before = None  # the definition above, where it is a small one
    for number, text in enumerate(texts):
        small = not any(line.startswith(("def ", "class ", "@", "async ")) for line in text.text.splitlines())
        if before and small and _is_next_line(before, text):
            count = 0
        else:
            count = 1 if small and (before or number == 0) else 2
        parts += [_blank(text, count), text]
        before = text if small else None
    return Traced.join(parts)


def _is_next_line(above: Traced, below: Traced) -> bool:
    """Whether one stands right below the other in a source file too."""
    end, start = above.origin_at(len(above.text) - 1), below.origin_at(0)
    return (end.path, end.line + 1) == (start.path, start.line)


def _blank(text: Traced, count: int) -> Traced:
    return Traced.insert("\n" * count, text.origin_at(0))


def documentation(recipe: Recipe, file: str, fragments: tuple[str, ...]) -> Traced:
    """Returns the module docstring: the package file's for this file, else the titles of its fragments."""
    table = recipe.merged("documentation")
    if file in table:
        origin = recipe.origin("documentation", file)
        opening = recipe.package_file.text.split("\n")[origin.line - 1].rstrip()
        first = origin.line + opening.endswith(('"""', "'''"))  # a long string may begin on the next line
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


def _surface(recipe: Recipe, links: _Links) -> list[Traced]:
    """Returns what stands in `__init__.py`, the public names: imports and `__all__`."""
    origin = recipe.package_file.origin("exports")
    imports = [_import("__init__.py", links.files[key], key, origin) for key in links.exports]
    listed = ", ".join(f'"{item.name}"' for item in sorted(imports, key=lambda item: reading_case(item.name)))
    return [import_block(imports), Traced.insert(f"__all__ = [{listed}]\n", origin)]
