"""Recognises edits that take a feature out of a package, which the architecture says and no fragment."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable

from generator.code.tree import is_docstring
from generator.errors import LoomError
from generator.pull.edits import Hunk, PackageEdits
from generator.pull.sources import PackageSources
from generator.pull.trials import Weave
from generator.recipe.library import Library


def find_left_out(
    woven: PackageSources, edits: PackageEdits, refused: Iterable[Hunk], library: Library, weave: Weave
) -> tuple[str, str] | None:
    """Returns the fragment without which the edited files are woven, and what to write to leave it out."""
    path = f"templates/architectures/{woven.package.architecture}.toml"
    origins = (
        o.path for hunk in refused for row in range(hunk.start, hunk.stop) for o in woven.origins(hunk.path, row)
    )
    for source, _ in Counter(origins).most_common(2):
        name = source.removeprefix("fragments/").removesuffix(".py")
        try:
            package = weave(library.with_texts({path: _without(library.files[path], name)}))
        except LoomError:
            continue
        edited = {file: text for file, text in edits.texts.items() if file in woven.package.origins}
        if edited and all(_read_code(package.files.get(file, "")) == _read_code(edited[file]) for file in edited):
            return name, f'Write without = ["{name}"] in {path}, and build with --force: that gives this program.'
    return None


def _without(text: str, name: str) -> str:
    """Returns an architecture that also leaves a fragment out."""
    more, count = re.subn(r"^without = \[", f'without = ["{name}", ', text, count=1, flags=re.MULTILINE)
    return more if count else f'without = ["{name}"]\n{text}'


def _read_code(text: str) -> list[str]:
    """Returns the statements of a file, without its docstring and imports, which gen derives."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return [text]
    return [
        ast.dump(node) for node in body if not (isinstance(node, ast.Import | ast.ImportFrom) or is_docstring(node))
    ]
