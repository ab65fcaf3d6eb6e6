"""Refuses Python that the weaver could not edit correctly."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from itertools import pairwise

from generator.code.bindings import free_names, scopes_of
from generator.code.tree import FUNCTIONS, Function, TracedTree, blocks, called_name, dotted_name, walk
from generator.errors import LoomError

WORDS = frozenset({"point", "proceed", "emit", "receive", "setting"})  # words for statements
LANGUAGE = WORDS | {"alike", "excludes", "layers", "provide", "requires", "splice", "threaded"}
_DECORATORS = frozenset({"splice", "provide"})
_OURS = frozenset({"generator", "fragments"})


def check_python(text: str, path: str) -> None:
    """Refuses text that does not compile, or compiles with a warning."""
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise LoomError("not valid Python: a null byte", f"{path}:{line}", "Remove it, or save the file as text.")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            compile(text, path, "exec", dont_inherit=True)
        except SyntaxError as error:
            line = min(error.lineno or 1, text.count("\n") + 1)
            raise LoomError(f"not valid Python: {error.msg}", f"{path}:{line}", "Fix this line.") from None
        except (ValueError, OverflowError) as error:  # such as a number that is too long
            raise LoomError(f"not valid Python: {error}", path, "Save it as text.") from None
        except (RecursionError, MemoryError):
            raise LoomError("nested too deeply", f"{path}:{find_depth(text)[1]}", "Write it flatter.") from None


def find_depth(text: str) -> tuple[int, int]:
    """Returns how deeply the nodes of a module are nested, and the line of its most deeply nested statement.

    That is the longest line if Python itself cannot read so deep a text.
    """
    deepest, line = 0, 1
    try:
        statements = ast.parse(text).body
    except (RecursionError, MemoryError):
        lines = text.split("\n")
        return len(text), 1 + max(range(len(lines)), key=lambda number: len(lines[number]))
    for statement in statements:
        level, depth = list[ast.AST]([statement]), 0
        while level:
            level, depth = [child for node in level for child in ast.iter_child_nodes(node)], depth + 1
        if depth > deepest:
            deepest, line = depth, statement.lineno
    return deepest, line


def check_style(source: TracedTree) -> None:
    """Refuses tabs, statements that share a line with another or with the header of their block, and some imports."""
    lines = source.text.split("\n")
    for row, line in enumerate(lines):
        blank = line[: len(line) - len(line.lstrip())]
        if blank.strip(" ") and line.strip() and row not in _rows_in_strings(source):
            where = str(source.traced.rows(row, row + 1).origin_at(0))
            raise LoomError("indented with something other than spaces", where, "Indent with spaces.")
    for node in (source.module, *_statements(source.module)):
        for one, other in ((a, b) for block in blocks(node) for a, b in pairwise(block)):
            if one.end_lineno == other.lineno:
                raise LoomError("several statements on a line", source.where(other), "Give each a line of its own.")
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            _check_import(node, source.where(node))
        for block in blocks(node) if not isinstance(node, (ast.Module, ast.ClassDef)) else ():
            if _is_on_header(block[0], lines) and not (isinstance(node, FUNCTIONS) and _is_stub(block)):
                where = source.where(node if block is getattr(node, "body", None) else block[0])
                raise LoomError("a block on the line of its header", where, "Put it on lines of its own, below.")


def check_parameters(source: TracedTree) -> None:
    """Refuses a parameter of a model without logical axes, by which it is sharded and decays."""
    for node in walk(source.module) if "nnx.Param(" in source.text else ():
        if called_name(node) == "nnx.Param" and isinstance(node, ast.Call):
            if not any(keyword.arg in ("axes", None) for keyword in node.keywords):
                remedy = 'Write nnx.Param(..., axes=("embed", "mlp")): for each axis a key of RULES in '
                remedy += "fragments/parallel/rules.py, or None if no device has a part of it; axes=() for one number."
                raise LoomError("a parameter of a model without axes", source.where(node), remedy)


def check_imports(source: TracedTree) -> None:
    """Refuses a fragment that uses a word of the language, as `proceed`, without importing it."""
    unbound = {word for word in LANGUAGE - _imported_names(source.module) if word in source.text}
    unbound -= scopes_of(source.tree).bound if unbound else set()  # rarely asked, and slow
    if missing := sorted(unbound.intersection(free_names(source.text))) if unbound else []:
        names = (node for node in walk(source.module) if isinstance(node, ast.Name) and node.id in missing)
        first = min(names, key=lambda node: node.lineno)
        remedy = f"Write from generator.language import {', '.join(missing)}."
        raise LoomError(f"uses {first.id}, which is not imported", source.where(first), remedy)


def _imported_names(module: ast.Module) -> set[str]:
    """Returns the names that a module imports from others."""
    return {alias.asname or alias.name for s in module.body if isinstance(s, ast.ImportFrom) for alias in s.names}


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    for block in blocks(node):
        for statement in block:
            yield statement
            yield from _statements(statement)


def _rows_in_strings(source: TracedTree) -> set[int]:
    """Returns the lines, from 0, that begin inside a string: their leading blanks belong to it."""
    from generator.code.concrete import read_concrete

    places = read_concrete(source.traced).notes.places.items()
    strings = [place for place, node in places if type(node).__name__ in ("SimpleString", "FormattedString")]
    return {row for first, _, last, _ in strings for row in range(first, last)}


def _is_on_header(first: ast.stmt, lines: list[str]) -> bool:
    """Returns whether the first statement of a block shares its line, or continues the line before it."""
    row = first.lineno - 1
    return bool(lines[row].encode()[: first.col_offset].strip()) or lines[row - 1].endswith("\\")


def _is_stub(block: list[ast.stmt]) -> bool:
    """Returns whether a block is only `...`, `pass` or a string."""
    value = block[0].value if isinstance(block[0], ast.Expr) else None
    constant = isinstance(value, ast.Constant) and isinstance(value.value, (str, bytes, type(...)))
    return len(block) == 1 and (constant or isinstance(block[0], ast.Pass))


def _check_import(node: ast.Import | ast.ImportFrom, where: str) -> None:
    names = [alias.name for alias in node.names]
    if isinstance(node, ast.Import):
        if any(name.split(".")[0] in _OURS for name in names):
            word = "generator.language"
            remedy = f"Import each name: `from {word} import NAME` or `from {word}.roles import NAME`."
            raise LoomError("a package may not need gen", where, remedy)
    elif "*" in names:
        raise LoomError("an import of everything", where, "Import each name, so that it can be linked.")
    elif not node.level and (node.module or "").split(".")[0] in _OURS and any(a.asname for a in node.names):
        raise LoomError("an import under another name", where, "Fragments link by name: drop the `as`.")


def check_decorators(node: Function | ast.ClassDef, source: TracedTree, woven: bool) -> None:
    """Refuses marks on code that is not woven, and other decorators on a splice or a provider.

    Args:
        woven: whether the function is a splice or a provider.
    """
    for decorator in node.decorator_list:
        name = dotted_name(decorator) or called_name(decorator)
        if not woven and name.split(".")[-1] in _DECORATORS:
            remedy = 'Write it as @splice("HOST.PLACE") or @provide("SITE") on a function at the top of the fragment.'
            raise LoomError(f"@{name} cannot be read", source.where(decorator), remedy)
    if woven and len(node.decorator_list) > 1:
        remedy = "Write one function for each."
        raise LoomError("a splice or a provider has one decorator", source.where(node), remedy)


def check_woven_function(function: Function, source: TracedTree, word: str) -> None:
    """Refuses a splice or provider whose statements would mean something else in their host.

    Args:
        word: `splice` or `provider`.
    """
    where, arguments = source.where(function), function.args
    if isinstance(function, ast.AsyncFunctionDef):
        raise LoomError(f"a {word} cannot be async", where, "Write it with `def`.")
    stars = arguments.vararg or arguments.kwarg or arguments.posonlyargs
    if stars or arguments.defaults or any(arguments.kw_defaults):
        remedy = "Its parameters name what it reads in its host: plain names, no defaults, no stars."
        raise LoomError(f"the {word} has parameters that its host cannot fill", where, remedy)
    for node in walk(function, into=False):
        forbidden = (ast.Global, ast.Nonlocal, *((ast.Yield, ast.YieldFrom) if word == "provider" else ()))
        if isinstance(node, forbidden):
            remedy = "Put it into a function, and call that."
            raise LoomError(f"a {word} cannot have `{source.code(node)}`", source.where(node), remedy)
        if isinstance(node, ast.Return) and not (word == "provider" and node is function.body[-1]):
            remedy = "Bind a name that the point shows, or put the statements into a function and call that."
            if word == "provider":
                remedy = "Return once, in the last line."
            raise LoomError(f"a {word} cannot return here: its host would return", source.where(node), remedy)
