"""The text of a fragment with splices, as one would write it by hand."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Sequence
from typing import NamedTuple

from generator.code.ruff import run_ruff, tidy_imports
from generator.code.scopes import scopes_of
from generator.code.traced import Traced
from generator.pull.graft import Graft
from generator.pull.sources import shifted

_WORDS = "from generator.language import"


class Unfit(Exception):
    """Why statements cannot stand in a splice."""


class Names(NamedTuple):
    """What names mean where a splice goes.

    Attributes:
        known: of a module: name -> its import in a fragment.
        threaded: values that travel through functions.
        local: variables of the function.
        has_self: whether it is a method.
    """

    known: dict[str, str]
    threaded: frozenset[str]
    local: set[str]
    has_self: bool


def locals_at(text: str, line: int) -> tuple[set[str], bool]:
    """The variables of the functions around a line, from 1; and whether one of them is a method."""
    found, has_self = set[str](), False
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (node.end_lineno or 0):
            names = {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
            stored = (n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
            found |= names | {n.id for n in stored}
            has_self |= bool(node.args.args) and node.args.args[0].arg == "self"
    return found, has_self


def splice_of(graft: Graft, names: Names, order: tuple[str, str]) -> tuple[str, set[str]]:
    """The splice, and the imports that it needs.

    Raises:
        Unfit: it reads or rebinds what the point does not show.
    """
    graft = _with_keywords(graft)
    scopes = scopes_of(graft.block().module)
    bound = set(scopes.module.bound)
    free = {name.value for name, binder in scopes.meant() if binder is None}
    shown = [*graft.join.shown, *graft.join.named]
    asked = [name for name in shown if name in free | bound]
    asked += sorted(name for name in (free | bound) & names.threaded & names.local if name not in asked)
    hidden = sorted((free | bound - _stays(graft)) & names.local - {*asked, "self"})
    if hidden:
        shows = ", ".join(shown) or "no names"
        verb = "read" if hidden[0] in free else "rebind"
        raise Unfit(f"it would {verb} {hidden[0]}, and the point {graft.join.name} shows {shows}")
    if "self" in free and names.has_self:
        asked.insert(0, "self")
    imports = {names.known[n] for n in free - {*asked, *dir(builtins), "proceed"} if n in names.known}
    words = "".join(f', {word}="{said}"' for word, said in zip(("after", "before"), order, strict=True) if said)
    body = "\n".join(shifted(graft.lines, 4)).rstrip()
    text = f'@splice("{graft.join.name}"{words})\ndef _({", ".join(asked)}):\n{body}\n'
    return text, imports | {f"{_WORDS} splice"} | ({f"{_WORDS} proceed"} if "proceed" in free else set())


def _stays(graft: Graft) -> set[str]:
    """Local names of the statements that go: what takes their place may have them again."""
    return {word for line in graft.replaced for word in re.findall(r"\w+", line)}


def _with_keywords(graft: Graft) -> Graft:
    """Expressions that a point shows, by their keywords."""
    text = "\n".join(graft.lines)
    for keyword, expression in graft.join.named.items():
        if not re.search(rf"(?<![\w.]){keyword}\b", text):
            text = re.sub(rf"(?<![\w.]){re.escape(expression)}(?!\w)", keyword, text)
    return Graft(graft.join, tuple(text.split("\n")), graft.hunks, graft.above, graft.below, graft.replaced)


def fragment_text(title: str, splices: Sequence[tuple[str, set[str]]]) -> str:
    """A fragment, formatted."""
    imports = sorted({one for _, needed in splices for one in needed})
    text = "\n\n".join([f'"""{title}"""\n', "\n".join(imports) + "\n", *(splice for splice, _ in splices)])
    (formatted,) = run_ruff([Traced.copy(tidy_imports(text, unused=False), "")])
    return formatted
