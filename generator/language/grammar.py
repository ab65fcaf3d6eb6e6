"""What a fragment may not say, beyond what Python forbids.

The weaver edits text where libcst says that a name or a call stands. What it could not edit rightly is refused here.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

import libcst as cst

from generator.code import syntax
from generator.code.memory import remembered
from generator.code.syntax import Source
from generator.code.traced import Traced, line_starts
from generator.errors import LoomError

WORDS = frozenset({"point", "proceed", "emit", "receive", "setting"})  # they stand in statements
_DECORATORS = frozenset({"splice", "provide"})
_OURS = frozenset({"generator", "fragments"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def check_python(text: str, path: str) -> ast.Module:
    """The tree of a text; refuses what Python refuses, and what it warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            tree = ast.parse(text, path)
            compile(tree, path, "exec", dont_inherit=True)
            return tree
        except SyntaxError as error:
            line = min(error.lineno or 1, text.count("\n") + 1)
            raise LoomError(f"not valid Python: {error.msg}", f"{path}:{line}", "Fix this line.") from None
        except (ValueError, OverflowError) as error:  # a null byte, or a number that is too long
            raise LoomError(f"not valid Python: {error}", path, "Save it as text.") from None
        except (RecursionError, MemoryError):
            raise LoomError("nested too deeply", path, "Write it flatter.") from None


def check_style(text: Traced, module: ast.Module) -> None:
    """Refuses tabs, blocks on the line of their header, and imports that cannot be linked."""
    lines = text.text.split("\n")
    for number, line in enumerate(lines):
        blank = line[: len(line) - len(line.lstrip())]
        if blank.strip(" ") and line.strip() and number not in Source(text).protected_lines():
            where = str(text.origin_at(line_starts(text.text)[number]))
            raise LoomError("indented with something other than spaces", where, "Indent with spaces.")
    for node in _statements(module):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            _check_import(node, f"{text.origin_at(0).path}:{node.lineno}")
        if isinstance(node, ast.ClassDef) or not isinstance(node, (ast.stmt, ast.excepthandler)):
            continue
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, [])
            if block and _is_on_header(block[0], lines) and not (isinstance(node, _FUNCTIONS) and _is_stub(block)):
                where = f"{text.origin_at(0).path}:{node.lineno if name == 'body' else block[0].lineno}"
                raise LoomError("a block on the line of its header", where, "Put it on lines of its own, below.")


def _statements(block: ast.AST) -> Iterator[ast.AST]:
    """The statements below a module, the clauses of `try` and `match` among them."""
    for name in "body", "handlers", "cases", "orelse", "finalbody":
        for node in getattr(block, name, ()):
            yield node
            yield from _statements(node)


def _is_on_header(first: ast.stmt, lines: list[str]) -> bool:
    """Whether something stands before the first statement of a block, or the line before it goes on."""
    row = first.lineno - 1
    return bool(lines[row].encode()[: first.col_offset].strip()) or lines[row - 1].endswith("\\")


def _is_stub(block: list[ast.stmt]) -> bool:
    """`...`, `pass` or a string."""
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


def check_decorators(function: cst.FunctionDef | cst.ClassDef, source: Source, woven: bool) -> None:
    """Refuses marks that would be taken for ordinary decorators, and decorators beside a mark.

    Args:
        woven: whether the function is read as a splice or a provider.
    """
    for decorator in function.decorators:
        name = syntax.dotted(decorator.decorator) or syntax.called(decorator.decorator)
        if not woven and name.split(".")[-1] in _DECORATORS:
            remedy = 'Write it as @splice("HOST.PLACE") or @provide("SITE") on a function at the top of the fragment.'
            raise LoomError(f"@{name} cannot be read", source.where(decorator), remedy)
    if woven and len(function.decorators) > 1:
        remedy = "Write one function for each."
        raise LoomError("a splice or a provider has one decorator", source.where(function), remedy)


def check_woven_function(function: cst.FunctionDef, source: Source, word: str) -> None:
    """Refuses a splice or provider whose statements would mean something else in their host.

    Args:
        word: `splice` or `provider`.
    """
    where, params = source.where(function), function.params
    if function.asynchronous:
        raise LoomError(f"a {word} cannot be async", where, "Write it with `def`.")
    plain = isinstance(params.star_arg, cst.Param) or params.star_kwarg or params.posonly_params
    if plain or any(parameter.default for parameter in syntax.parameters(function)):
        remedy = "Its parameters name what it reads in its host: plain names, no defaults, no stars."
        raise LoomError(f"the {word} has parameters that its host cannot fill", where, remedy)
    last = syntax.body(function)[-1:] if word == "provider" else []
    for node in own_nodes(function):
        if isinstance(node, (cst.Global, cst.Nonlocal)) or (isinstance(node, cst.Yield) and word == "provider"):
            remedy = "Put it into a function, and call that."
            raise LoomError(f"a {word} cannot say `{source.code(node)}`", source.where(node), remedy)
        if isinstance(node, cst.Return) and not any(syntax.simple(statement) is node for statement in last):
            remedy = "Bind a name that the point shows, or put the statements into a function and call that."
            if word == "provider":
                remedy = "Return once, in the last line."
            raise LoomError(f"a {word} cannot return here: its host would return", source.where(node), remedy)


@remembered
def own_nodes(function: cst.FunctionDef) -> tuple[cst.CSTNode, ...]:
    """The nodes below a function, without those of functions nested in it."""
    found: list[cst.CSTNode] = []

    def visit(node: cst.CSTNode) -> None:
        for child in syntax.children(node):
            if type(child) not in (cst.FunctionDef, cst.Lambda, cst.ClassDef):
                found.append(child)
                visit(child)

    visit(function.body)
    return tuple(found)
