"""`gen build --after PASS`: the text of a package between two passes of weaving, with the source of each line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from generator.disk.lock import Combination
from generator.disk.project import Project
from generator.errors import LoomError, nearest

if TYPE_CHECKING:
    from generator.code.traced import Traced


def text_after(project: Project, combination: Combination, name: str, only: str | None) -> str:
    """Returns the text after a pass: `SOURCE:LINE | text`, under a heading for each file and definition.

    Args:
        name: of the pass.
        only: a file of the package, or a definition; with it go its methods and the splices into it.
    """
    from generator.recipe.recipe import select  # late: these import all of weaving
    from generator.weaver import PASSES, run_passes

    if name not in PASSES:
        raise LoomError(f"there is no pass {name!r}", remedy=f"They are {', '.join(PASSES)}.")
    architecture, target, parts = combination
    texts = run_passes(select(architecture, target, project.library(), parts=parts), name).texts()
    if only and only not in {file for file, _, _ in texts}:
        definitions = [part for text in texts for part in ([text] if text[1] else _definitions(*text))]
        names = {key for _, key, _ in definitions} | {file for file, _, _ in texts}
        texts = [text for text in definitions if f"{text[1]}.".startswith(f"{only}.")]
        if not texts:
            message = f"{only} is neither a file nor a definition of {combination.name} after {name}"
            raise LoomError(message, remedy=nearest(only, names))
    elif only:
        texts = [text for text in texts if text[0] == only]
    return "".join(line for file, key, text in texts if text.text for line in _lines(f"{file} {key}".rstrip(), text))


def _definitions(file: str, _: str, text: Traced) -> Iterator[tuple[str, str, Traced]]:
    """Yields the definitions at the top of a Python file."""
    from generator.code.bindings import bound_name
    from generator.code.tree import TracedTree, walk

    source = TracedTree(text if file.endswith(".py") else text[:0])
    for statement in source.statements:
        names = [name for node in walk(statement, into=False) if (name := bound_name(node))]
        yield from [(file, names[0], source.lines(statement))] if names else []


def _lines(heading: str, text: Traced) -> Iterator[str]:
    """Yields a heading and the lines of a text: the source of its start in front, further ones behind."""
    from generator.code.sourcemap import segments

    rows = zip(text.lines(), segments(text), strict=True)
    lines = [(line.text.rstrip(), dict.fromkeys(str(origin) for _, origin in found)) for line, found in rows]
    width = max(len(source) for _, (source, *_) in lines)
    yield f"== {heading}\n"
    for line, (first, *others) in lines:
        yield f"{first:<{width}} | {line}{'  <- ' * bool(others)}{', '.join(others)}".rstrip() + "\n"
