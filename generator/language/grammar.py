"""What a fragment may not say, beyond what Python forbids.

The weaver edits text where libcst says that a name or a call stands. What it could not edit rightly is refused here.
"""

from __future__ import annotations

import warnings

import libcst as cst

from generator.code import syntax
from generator.code.syntax import Source
from generator.code.traced import line_starts
from generator.errors import LoomError

WORDS = frozenset({"point", "proceed", "emit", "receive", "setting"})  # they stand in statements
_DECORATORS = frozenset({"splice", "provide"})
_OURS = frozenset({"generator", "fragments"})
_HEADED = (cst.FunctionDef, cst.If, cst.Else, cst.For, cst.While, cst.With, cst.Try, cst.ExceptHandler, cst.Finally)


def check_python(text: str, path: str) -> None:
    """Refuses what Python refuses, and what it warns of.

    Raises:
        LoomError: with the line and Python's reason.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            compile(text, path, "exec", dont_inherit=True)
        except SyntaxError as error:
            line = min(error.lineno or 1, text.count("\n") + 1)
            raise LoomError(f"not valid Python: {error.msg}", f"{path}:{line}", "Fix this line.") from None
        except (ValueError, OverflowError) as error:  # a null byte, or a number that is too long
            raise LoomError(f"not valid Python: {error}", path, "Save it as text.") from None
        except (RecursionError, MemoryError):
            raise LoomError("nested too deeply", path, "Write it flatter.") from None


def check_style(source: Source) -> None:
    """Refuses tabs, blocks on the line of their header, and imports that cannot be linked.

    Raises:
        LoomError: with the line and what to write instead.
    """
    for number, line in enumerate(source.text.split("\n")):
        blank = line[: len(line) - len(line.lstrip())]
        if blank.strip(" ") and line.strip() and number not in source.protected_lines():
            where = str(source.traced.origin_at(line_starts(source.text)[number]))
            raise LoomError("indented with something other than spaces", where, "Indent with spaces.")
    for node in syntax.walk(source.module):
        on_one_line = type(node) in _HEADED and isinstance(getattr(node, "body", None), cst.SimpleStatementSuite)
        if on_one_line and not (isinstance(node, cst.FunctionDef) and _is_stub(node.body)):
            remedy = "Put it on lines of its own, below."
            raise LoomError("a block on the line of its header", source.where(node), remedy)
        if isinstance(node, (cst.Import, cst.ImportFrom)):
            _check_import(node, source)


def _is_stub(suite: cst.BaseSuite) -> bool:
    """`...`, `pass` or a string."""
    small = next(iter(suite.body))
    constant = isinstance(small, cst.Expr) and isinstance(small.value, (cst.Ellipsis, cst.SimpleString))
    return len(suite.body) == 1 and (constant or isinstance(small, cst.Pass))


def _check_import(node: cst.Import | cst.ImportFrom, source: Source) -> None:
    if isinstance(node, cst.ImportFrom):
        module = syntax.dotted(node.module).split(".")[0] if node.module and not node.relative else ""
        if isinstance(node.names, cst.ImportStar):
            remedy = "Import each name, so that it can be linked."
            raise LoomError("an import of everything", source.where(node), remedy)
        if module in _OURS and any(alias.asname for alias in node.names):
            remedy = "Fragments link by name: drop the `as`."
            raise LoomError("an import under another name", source.where(node), remedy)
    elif any(syntax.dotted(alias.name).split(".")[0] in _OURS for alias in node.names):
        remedy = (
            "Import each name: `from generator.language import NAME` or `from generator.language.roles import NAME`."
        )
        raise LoomError("a package may not need gen", source.where(node), remedy)


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


def own_nodes(function: cst.FunctionDef) -> list[cst.CSTNode]:
    """The nodes below a function, without those of functions nested in it."""
    found: list[cst.CSTNode] = []

    def visit(node: cst.CSTNode) -> None:
        for child in syntax.children(node):
            if not isinstance(child, (cst.FunctionDef, cst.Lambda, cst.ClassDef)):
                found.append(child)
                visit(child)

    visit(function.body)
    return found
