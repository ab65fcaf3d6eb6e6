"""Renders the files that are not Python, with jinja2, and parses every file of a package by its suffix."""

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
from generator.package.config import describe_fields
from generator.package.layout import Layout
from generator.package.templating import render_text
from generator.recipe.parts import parts_for
from generator.recipe.recipe import Recipe

_PARSERS: dict[str, Callable[[str], object]] = {".toml": tomllib.loads, ".json": json.loads}


def render_files(recipe: Recipe, layout: Layout, fields: list[Field]) -> tuple[dict[str, str], list[str]]:
    """Returns the files of a package that are not Python, and the paths of their templates."""
    defaults = recipe.target_file.data.parts
    possible = parts_for(recipe.target, recipe.package_file, defaults)
    context: dict[str, Any] = {
        "features": _describe_fragments(recipe, layout),
        "fields": describe_fields(fields),
        "presets": {
            name: {field: literal(value, str(line)) for field, (value, line) in values.items()}
            for name, values in recipe.presets.items()
        },
        "recipes": [
            {
                "preset": row.preset,
                "hardware": row.hardware,
                "flags": " ".join(f"--{n.replace('_', '-')} {v}" for n, (v, _) in row.settings.items()),
                "compiler": " ".join(row.table.flags),
                "topology": recipe.recipes.hardware[row.hardware].topology,
                "figures": row.table.figures.replace("|", "\\|"),
                "why": row.table.why.replace("|", "\\|"),
            }
            for row in recipe.recipes.rows
        ],
        "requirements": _find_requirements(recipe, layout),
        "extras": recipe.merged("extras"),
        "modules": sorted(file for file in layout.texts if "/" not in file),
        "commands": [file for file, text in layout.texts.items() if "\nif __name__ == " in text.text],
        "parts": recipe.parts,
        "default_parts": defaults,
        "other_parts": {
            name: part.title
            for name, part in possible.items()
            if name not in recipe.parts and recipe.unfit_parts.isdisjoint({name, *part.needs})
        },
        "documentation": {file: _first_line(text.text) for file, text in layout.texts.items()},
    }
    files: dict[str, str] = {}
    used = []
    for output, path in recipe.templates.items():
        where = str(recipe.origin("templates", output))
        if path not in recipe.library.files:
            remedy = f"It is the template of {output}: write it, or drop the line."
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


def _describe_fragments(recipe: Recipe, layout: Layout) -> list[dict[str, object]]:
    """Returns the name, title, citation and files of each fragment, tests aside."""
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


def _find_requirements(recipe: Recipe, layout: Layout) -> list[str]:
    """Returns the requirements of all imports outside tests, except those of extras."""
    table = recipe.merged("requirements")
    optional = {requirement for requirements in recipe.merged("extras").values() for requirement in requirements}
    required = set()
    for file, modules in layout.modules.items():
        for module in () if file.startswith("tests/") else modules:
            if module not in sys.stdlib_module_names:
                if module not in table:
                    message = f"{file} imports {module}, which no requirement covers"
                    remedy = f'Add `{module} = "DISTRIBUTION>=VERSION"` under [requirements].'
                    raise LoomError(message, recipe.package_file.path, remedy)
                required.add(table[module])
    return sorted(required - optional)


def check_files(files: Mapping[str, str], woven: Mapping[str, Traced], templates: Mapping[str, str]) -> None:
    """Refuses a Python, TOML or JSON file that cannot be parsed.

    Args:
        files: path in the package -> text.
        woven: path of a Python file -> text with origins.
        templates: path of another file -> its template.
    """
    for path, text in files.items():
        suffix = path[path.rfind(".") :]
        if suffix == ".py":
            _, _, body = text.partition("\n")
            if line := _invalid_line(body):
                where = woven[path].origin_at(line_starts(text)[line]) if path in woven else templates[path]
                message = f"{path}, line {line + 1}, would not be Python: {short(text.split(chr(10))[line].strip())}"
                raise LoomError(message, str(where), "Fix this line, or what is woven into it.")
        elif suffix in _PARSERS:
            try:
                _PARSERS[suffix](text)
            except (ValueError, RecursionError) as error:
                message = f"{path} would not be {suffix[1:].upper()}: {short(str(error), 300)}"
                raise LoomError(message, templates[path], "Fix the template, or the values that it uses.") from None


@cached
def _invalid_line(text: str) -> int:
    """Returns the line at which a text is not valid Python, 0 if it is valid."""
    try:
        check_python(text, "text")
    except LoomError as error:
        return int((error.where or "").partition(":")[2] or 1)
    return 0
