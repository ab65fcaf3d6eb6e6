"""What Python makes of a file: the same for another comment, docstring, layout, or name of a local variable.

Two files with the same bytecode are the same program. Where they differ, `changed` says which statements do.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

from generator.code.hunks import hunks
from generator.programs.noting import branches

OPTIMIZED = 1  # of co_flags: a function, whose locals have numbers
LOOKING = {"locals", "vars", "eval", "exec", "dir"}  # what can see the names of locals
BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


def code_key(code: CodeType, nested: bool = True) -> tuple:
    """What a code object does.

    Args:
        nested: whether what the functions in it do belongs to it.
    """
    parameters = code.co_argcount + code.co_kwonlyargcount
    parameters += bool(code.co_flags & 4) + bool(code.co_flags & 8)  # *args, **kwargs
    hidden = code.co_flags & OPTIMIZED and not LOOKING.intersection(code.co_names)
    names = code.co_varnames[:parameters] if hidden else (code.co_varnames, code.co_cellvars, code.co_freevars)
    counts: tuple = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, len(code.co_varnames)
    counts += len(code.co_cellvars), len(code.co_freevars)
    constants = tuple(_constant_key(value, nested) for value in code.co_consts)
    return code.co_code, code.co_exceptiontable, code.co_flags, counts, names, code.co_names, constants


def _constant_key(value: Any, nested: bool) -> Any:
    if isinstance(value, CodeType):
        return code_key(value) if nested else "code"
    if isinstance(value, tuple):
        return tuple(_constant_key(item, nested) for item in value)
    if isinstance(value, frozenset):
        return "set", sorted(repr(_constant_key(item, nested)) for item in value)
    return type(value).__name__, repr(value)  # as 0.0 == -0.0 and 1 == True


class _WithoutDocstrings(ast.NodeTransformer):
    """Keeps positions: what is left has the lines that it had."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if node.body and isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant):
                if isinstance(node.body[0].value.value, str):
                    place = {"lineno": node.body[0].lineno, "col_offset": 0, "end_lineno": node.body[0].lineno}
                    passing = ast.Pass(**place, end_col_offset=0)
                    node.body[:1] = [] if len(node.body) > 1 or isinstance(node, ast.Module) else [passing]
        return node


@lru_cache(maxsize=64)
def _parsed(text: str) -> tuple[ast.Module, CodeType]:
    tree = _WithoutDocstrings().visit(ast.parse(text))
    return tree, compile(tree, "file", "exec", dont_inherit=True)


def same_code(before: str, after: str) -> bool:
    """Whether two files are one program, by their bytecode; no where one is no Python."""
    try:
        return code_key(_parsed(before)[1]) == code_key(_parsed(after)[1])
    except (SyntaxError, ValueError, RecursionError):
        return False


@dataclass(frozen=True)
class Statement:
    """A statement of a file, without the statements in it.

    Attributes:
        owner: the function or class that it stands in, '' for the module.
        place: the blocks that it stands in, from the module's, such as `.body.orelse`: with the order of statements,
            whose they are.
        runs: whether it runs when its function is called, and not when the file is imported.
        lines: of the statement; of a function or class those of all of its body.
        binds: the names that it gives a value to, where it runs when the file is imported.
        reads: every name in it except those that it imports.
        sets, gets: the attributes that it gives a value to, and those whose value it takes.
        kind: of syntax.
        branches: line and column of the parts of expressions that need not be computed when it runs.
        parameters: of a function.
        header: of a function or class, what its body does not show: decorators, bases, defaults of parameters.
    """

    owner: str
    place: str
    runs: bool
    lines: range
    binds: frozenset[str]
    reads: frozenset[str]
    sets: frozenset[str]
    gets: frozenset[str]
    kind: str
    text: str
    branches: frozenset[tuple[int, int]]
    parameters: frozenset[str]
    header: frozenset[tuple[str, str]]

    def header_differs(self, other: Statement) -> bool:
        """Whether two definitions of one name are decorated, derived or, for a parameter of both, left out unlike."""
        parameters = self.parameters & other.parameters
        return any(not of or of in parameters for of, _ in self.header ^ other.header)


def statements(text: str) -> list[Statement]:
    """All of a file, in order."""
    return list(_walk(_parsed(text)[0].body, "", ".body", False))


def _walk(body: list, owner: str, place: str, runs: bool) -> Iterator[Statement]:
    for node in body:
        inner = {name: getattr(node, name) for name in BODIES if isinstance(getattr(node, name, None), list)}
        defines = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        head = type(node)(**{name: [] if name in inner else value for name, value in ast.iter_fields(node)})
        first = min((part.lineno for part in inner.get("body", []) if hasattr(part, "lineno")), default=None)
        end = node.end_lineno if defines or first is None else max(first - 1, node.lineno)
        names = [x for x in ast.walk(head) if isinstance(x, (ast.Name, ast.Attribute, ast.alias))]
        reads = {x.id if isinstance(x, ast.Name) else x.attr for x in names if not isinstance(x, ast.alias)}
        binds = {x.id for x in names if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
        binds |= {x.asname or x.name.partition(".")[0] for x in names if isinstance(x, ast.alias)}
        binds |= {node.name} if defines else set()
        attributes = [x for x in names if isinstance(x, ast.Attribute)]
        sets = frozenset(x.attr for x in attributes if isinstance(x.ctx, ast.Store))
        gets = frozenset(x.attr for x in attributes if isinstance(x.ctx, ast.Load))
        lines = range(node.lineno, end + 1)
        kind, dump = type(node).__name__, ast.dump(head)
        known = frozenset(binds), frozenset(reads), sets, gets, kind, dump, _branches(head), *_header(node)
        yield Statement(owner, place, runs, lines, *known)
        name = f"{owner}.{node.name}" if owner and defines else node.name if defines else owner
        for block, part in inner.items():
            yield from _walk(part, name, f"{place}.{block}", (runs or kind != "ClassDef") if defines else runs)


def _header(node: ast.AST) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
    """The parameters of a definition, and its header: what is of a parameter has its name."""
    if isinstance(node, ast.ClassDef):
        return frozenset(), frozenset(("", ast.dump(x)) for x in [*node.decorator_list, *node.bases, *node.keywords])
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return frozenset(), frozenset()
    positional = [*node.args.posonlyargs, *node.args.args]
    after = positional[len(positional) - len(node.args.defaults) :]
    defaults = [*zip(after, node.args.defaults, strict=True)]
    defaults += [(x, value) for x, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if value]
    header = [(x.arg, ast.dump(value)) for x, value in defaults] + [("", ast.dump(x)) for x in node.decorator_list]
    return frozenset(x.arg for x in [*positional, *node.args.kwonlyargs]), frozenset(header)


def _branches(head: ast.AST) -> frozenset[tuple[int, int]]:
    found = [value for node in ast.walk(head) for _, value in branches(node)]
    parts = [part for value in found for part in (value[1:] if isinstance(value, list) else [value])]
    return frozenset((part.lineno, part.col_offset) for part in parts)


def changed(before: str, after: str) -> tuple[list[Statement], list[Statement]]:
    """Gives the statements that only one side has, except those of functions whose bytecode is the same."""
    sides = statements(before), statements(after)
    codes = _functions(_parsed(before)[1]), _functions(_parsed(after)[1])
    same = {name for name in codes[0].keys() & codes[1].keys() if codes[0][name] == codes[1][name]}
    result: tuple[list[Statement], list[Statement]] = ([], [])
    for hunk in hunks(*([f"{it.owner} {it.place} {it.text}" for it in side] for side in sides)):
        for found, side, numbers in zip(result, sides, hunk, strict=True):
            found += [side[number] for number in numbers if side[number].owner not in same]
    return result


def _functions(code: CodeType, prefix: str = "") -> dict[str, list[tuple]]:
    """What each function and class of a file does, without those in it; lambdas belong to what they stand in."""
    result: dict[str, list[tuple]] = {prefix: [code_key(code, nested=False)]}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            hidden = constant.co_name.startswith("<")
            name = prefix if hidden else f"{prefix}.{constant.co_name}" if prefix else constant.co_name
            for found, keys in _functions(constant, name).items():
                result.setdefault(found, []).extend(keys)
    return result
