"""Lays definitions out into files: the order that a reader wants, the header, the docstring, the imports."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

from generator import __version__
from generator.code.format import format_python
from generator.code.memory import remembered
from generator.code.traced import Origin, Traced
from generator.code.tree import parse_ast
from generator.errors import LoomError, short
from generator.language.fragment import Fragment
from generator.language.parts import Definition, Field, Import
from generator.package.config import architecture_value, config_class, presets_value
from generator.package.imports import import_block, reading_case
from generator.package.templating import render_text
from generator.recipe.recipe import Recipe
from generator.weave.link import Linked, Linker, origin_of, reachable

CONFIG = "config.py"
Link = Callable[[str], Linked]


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
    """The file that a fragment's definitions go to, by its folder."""
    folders = recipe.package_file.data.folders
    if fragment.folder not in folders:
        remedy = f"Add `{fragment.folder} = ...` under [folders], or move the fragment."
        raise LoomError(f"no file for fragments in {fragment.folder}/", recipe.package_file.path, remedy)
    file = folders[fragment.folder]
    return f"{file}{fragment.short}.py" if file.endswith("/") else file


def lay_out(recipe: Recipe, definitions: dict[str, Definition], fields: list[Field]) -> Layout:
    """Places what the roots reach.

    Args:
        definitions: key -> woven definition.
        fields: the members of Config, filled.
    """
    fragments = {fragment.name: fragment for fragment in recipe.fragments}
    files = {name: file_of(fragment, recipe) for name, fragment in fragments.items()}
    extra = {name: f"{CONFIG}:{name}" for name in ("ARCHITECTURE", "Config", "PRESETS")}
    ambient = Import("dataclasses", "", "dataclasses", recipe.package_file.origin("config", "documentation"))
    linker = Linker(definitions, recipe.fragments, lambda: recipe.library.everything, extra, (ambient,))
    values = architecture_value(recipe), config_class(recipe, fields), presets_value(recipe, fields)
    made = dict(zip(extra.values(), values, strict=True))
    cache: dict[str, Linked] = {}

    def linked(key: str) -> Linked:
        if key not in cache:
            text = made[key] if key in made else definitions[key].text
            cache[key] = linker.link(text, CONFIG if key in made else files[definitions[key].fragment])
        return cache[key]

    exports = [extra.get(name, name) for name in recipe.package_file.data.exports]
    _check_exports(exports, {**definitions, **made}, recipe)
    own = [key for key in definitions if key.endswith(":__main__") or key.startswith("tests/")]
    reached = reachable([*exports, *own], linked)
    placed: dict[str, list[str]] = {}
    for key in _in_reading_order(reached, definitions, linked, fragments):
        placed.setdefault(files[definitions[key].fragment], []).append(key)
    placed = {CONFIG: [key for key in made if key in reached], **placed}
    home = {key: file for file, keys in placed.items() for key in keys}
    raw, modules, named = {}, {}, {}
    for file, keys in placed.items():
        own_texts = [made[key] if key in made else definitions[key].text for key in keys]
        outside = [item for key in keys for item in linked(key).imports]
        inside = [
            Import(_relative(file, home[used]), used.split(":")[-1], used.split(":")[-1], text.origin_at(0))
            for key, text in zip(keys, own_texts, strict=True)
            for used in linked(key).uses
            if home[used] != file
        ]
        named[file] = _fragments_in(own_texts, recipe)
        raw[file] = [import_block([*outside, *inside]), *own_texts]
        modules[file] = tuple(sorted({item.module.split(".")[0] for item in outside}))
    _check_circles(placed, linked, home, {**{key: d.text for key, d in definitions.items()}, **made})
    raw["__init__.py"] = _surface(recipe, exports, home)
    formatted = iter(format_python([text for parts in raw.values() for text in parts]))  # in one go, which is fast
    texts = {
        file: _file(recipe, file, next(formatted), [next(formatted) for _ in parts[1:]], named.get(file, ()))
        for file, parts in raw.items()
    }
    for folder in sorted({file.rsplit("/", 1)[0] for file in placed if "/" in file}):
        path = f"{folder}/__init__.py"
        texts[path] = Traced.join([header(recipe, ()), documentation(recipe, path, ())])
    return Layout(texts, modules, named)


def _check_exports(exports: list[str], known: dict, recipe: Recipe) -> None:
    for name in exports:
        if name not in known:
            where = str(recipe.package_file.origin("exports"))
            raise LoomError(f"the package exports {name}, which no selected fragment defines", where, "Remove it.")


def _in_reading_order(reached: list[str], definitions: dict, linked: Link, fragments: dict[str, Fragment]) -> list[str]:
    """Fragments after those that they use; a fragment's definitions together, as it has them."""
    members: dict[str, list[str]] = {}
    wanted = set(reached)
    for key, definition in definitions.items():
        if key in wanted:
            members.setdefault(definition.fragment, []).append(key)
    order: list[str] = []
    seen: set[str] = set()

    def visit(fragment: str) -> None:
        if fragment in seen:
            return
        seen.add(fragment)
        for key in members[fragment]:
            for used in linked(key).uses:
                if used in definitions:
                    visit(definitions[used].fragment)
        order.append(fragment)

    for key in reached:
        if key in definitions:
            visit(definitions[key].fragment)
    written = [key for fragment in order for key in _as_written(members[fragment], definitions)]
    return _defined_before_they_run(written, definitions, linked)


def _defined_before_they_run(keys: list[str], definitions: dict, linked: Link) -> list[str]:
    """Two fragments may use each other in functions; what runs when a definition is read must stand before it."""
    ordered: dict[str, None] = {}

    def place(key: str, waiting: tuple[str, ...] = ()) -> None:
        if key in ordered or key in waiting:
            return
        at_once = _names_at_once(definitions[key].text.text)
        for used in linked(key).uses:
            if used in definitions and used in known and used.split(":")[-1] in at_once:
                place(used, (*waiting, key))
        ordered[key] = None

    known = set(keys)
    for key in keys:
        place(key)
    return list(ordered)


@remembered
def _names_at_once(text: str) -> frozenset[str]:
    """The names that are read when the code is: of annotations, defaults, decorators, bases; not in functions."""
    names: set[str] = set()
    queue: list[ast.AST] = [parse_ast(text)]
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


def _as_written(keys: list[str], definitions: dict) -> list[str]:
    """The definitions of a fragment in its order, each next to its versions for kinds of layer; `__main__` last."""
    return sorted(keys, key=lambda key: (key.endswith(":__main__"), definitions[key].text.origin_at(0).line))


def _relative(file: str, other: str) -> str:
    """The module of `other` as seen from `file`."""
    folder = file[: file.rfind("/") + 1]
    if folder and other.startswith(folder):
        file, other = file.removeprefix(folder), other.removeprefix(folder)
    dots = "." * (1 + file.count("/"))
    return dots + other.removesuffix(".py").replace("/", ".")


def _check_circles(placed: dict[str, list[str]], linked: Link, home: dict[str, str], texts: dict[str, Traced]) -> None:
    needs: dict[str, dict[str, tuple[str, str]]] = {}  # file -> other file -> a definition, and what it uses there
    for file, keys in placed.items():
        uses = {home[used]: (key, used) for key in keys for used in linked(key).uses}
        needs[file] = {other: uses[other] for other in sorted(uses) if other != file}
    done: set[str] = set()

    def visit(file: str, way: list[str]) -> None:
        if file in way:
            circle = [*way[way.index(file) :], file]
            reasons = [(needs[one][other], one) for one, other in pairwise(circle)]
            shown = ", ".join(f"{key} in {one} uses {used}" for (key, used), one in reasons)
            key, used = reasons[0][0]
            raise LoomError(
                f"files import each other in a circle, {' -> '.join(circle)}: {shown}",
                str(origin_of(texts[key], used)),
                "Move a definition to a fragment of another folder.",
            )
        if file not in done:
            for other in needs[file]:
                visit(other, [*way, file])
            done.add(file)

    for file in needs:
        visit(file, [])


def _fragments_in(texts: Iterable[Traced], recipe: Recipe) -> tuple[str, ...]:
    by_path = {fragment.path: fragment.name for fragment in recipe.fragments}
    paths = dict.fromkeys(path for text in texts for path in text.paths())
    return tuple(by_path[path] for path in paths if path in by_path)


def header(recipe: Recipe, fragments: Iterable[str]) -> Traced:
    """The comment lines at the top of every Python file."""
    origin = Origin(recipe.architecture_file.path, 1)
    made = f"# Code generated by gen {__version__} from {recipe.architecture} x {recipe.target}."
    first = f"{made} To change a line, change its fragment: see gen explain.\n"
    names = ", ".join(fragments)
    listed = textwrap.fill(
        f"Fragments: {names}.", 118, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
    )
    return Traced.insert(first + (f"{listed}\n" if names else ""), origin)


def _file(recipe: Recipe, file: str, imports: Traced, texts: list[Traced], fragments: tuple[str, ...]) -> Traced:
    """A file of formatted texts."""
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
    """The module docstring: the package file's for this file, else the titles of its fragments."""
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


def _surface(recipe: Recipe, exports: list[str], home: dict[str, str]) -> list[Traced]:
    """What stands in `__init__.py`, the public names: imports and `__all__`."""
    origin = recipe.package_file.origin("exports")
    names = [key.split(":")[-1] for key in exports]
    imports = [
        Import(_relative("__init__.py", home[key]), name, name, origin)
        for key, name in zip(exports, names, strict=True)
    ]
    listed = ", ".join(f'"{name}"' for name in sorted(names, key=reading_case))
    return [import_block(imports), Traced.insert(f"__all__ = [{listed}]\n", origin)]
