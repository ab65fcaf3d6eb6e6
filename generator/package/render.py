"""Renders what is not Python, with jinja2, and reads every file as what it is before anybody gets it."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from generator.code.caching import cached
from generator.code.literals import literal
from generator.code.traced import Traced, line_starts
from generator.errors import LoomError, short
from generator.language.grammar import check_python
from generator.language.parts import Field
from generator.package.config import described_fields
from generator.package.layout import Layout
from generator.package.templating import render_text
from generator.recipe.recipe import Recipe

_PARSERS: dict[str, Callable[[str], object]] = {".toml": tomllib.loads, ".json": json.loads}


def render_files(recipe: Recipe, layout: Layout, fields: list[Field]) -> tuple[dict[str, str], list[str]]:
    """Returns the files of a package that are not Python, and the templates that they were made from."""
    context: dict[str, Any] = {
        "features": _features(recipe, layout),
        "fields": described_fields(fields),
        "presets": {
            name: {field: literal(value, str(line)) for field, (value, line) in values.items()}
            for name, values in recipe.presets.items()
        },
        "requirements": _requirements(recipe, layout),
        "extras": recipe.merged("extras"),
        "modules": sorted(file for file in layout.texts if "/" not in file),
        "commands": [file for file, text in layout.texts.items() if "\nif __name__ == " in text.text],
        "parts": recipe.parts,
        "other_parts": {n: p.title for n, p in recipe.package_file.data.parts.items() if n not in recipe.parts},
        "documentation": {file: _first_line(text.text) for file, text in layout.texts.items()},
    }
    files: dict[str, str] = {}
    used = []
    for output, path in recipe.templates.items():
        where = str(recipe.origin("templates", output))
        if path not in recipe.library.files:
            remedy = f"It is asked for as {output}; write it, or drop the line."
            raise LoomError("this template is missing", path or where, remedy)
        for other in (*layout.texts, *files):
            if f"{other}/".startswith(f"{output}/") or output.startswith(f"{other}/"):
                raise LoomError(f"the package has {other} already, beside {output}", where, "Give it another name.")
        files[output] = render_text(recipe.library.files[path], path, recipe, **context)
        used.append(path)
    return files, used


def _first_line(text: str) -> str:
    """Returns the first line of a module's docstring."""
    start = text.find('"""') + 3
    return text[start:].split("\n")[0].split('"""')[0]


def _features(recipe: Recipe, layout: Layout) -> list[dict[str, object]]:
    """Returns the fragments that left something in the package, with where."""
    return [
        {
            "name": fragment.name,
            "title": fragment.title,
            "citation": fragment.citation,
            "files": [file for file, names in sorted(layout.fragments.items()) if fragment.name in names],
        }
        for fragment in recipe.fragments
        if fragment.folder != "tests"
    ]


def _requirements(recipe: Recipe, layout: Layout) -> list[str]:
    """Returns the requirements of what the package imports outside its tests, except those of its extras."""
    table = recipe.merged("requirements")
    optional = {need for needs in recipe.merged("extras").values() for need in needs}
    found = set()
    for file, modules in layout.modules.items():
        for module in modules:
            if file.startswith("tests/") or module in sys.stdlib_module_names:
                continue
            if module not in table:
                remedy = f'Add `{module} = "DISTRIBUTION>=VERSION"` under [requirements].'
                raise LoomError(
                    f"{file} imports {module}, which no requirement covers", recipe.package_file.path, remedy
                )
            found.add(table[module])
    return sorted(found - optional)


def check_files(files: Mapping[str, str], woven: Mapping[str, Traced], templates: Mapping[str, str]) -> None:
    """Refuses files that are not what their suffix says.

    Args:
        files: path in the package -> text.
        woven: those of Python, with their origins.
        templates: path in the package -> template, of the others.
    """
    for path, text in files.items():
        suffix = path[path.rfind(".") :]
        if suffix == ".py":
            _, _, body = text.partition("\n")
            if line := _wrong_line(body):
                where = woven[path].origin_at(line_starts(text)[line]) if path in woven else templates[path]
                message = f"{path}, line {line + 1}, would be no Python: {short(text.split(chr(10))[line].strip())}"
                raise LoomError(message, str(where), "Fix this line, or what is woven into it.")
        elif suffix in _PARSERS:
            try:
                _PARSERS[suffix](text)
            except (ValueError, RecursionError) as error:
                message = f"{path} would be no {suffix[1:].upper()}: {short(str(error), 300)}"
                raise LoomError(message, templates[path], "Fix the template, or what it is given.") from None


@cached
def _wrong_line(text: str) -> int:
    """Returns the line at which a text is no Python, 0 where it is one; packages have most texts in common."""
    try:
        check_python(text, "text")
    except LoomError as error:
        return int((error.where or "").partition(":")[2] or 1)
    return 0
