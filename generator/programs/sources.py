"""Compares Python sources: the same except for comments and names of locals, or else which functions differ."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef
Texts = dict[str, str]
OPTIMIZED = 1  # of co_flags: a function, whose locals have numbers
INTROSPECTION = {"locals", "vars", "eval", "exec", "dir"}  # what can see the names of locals
# what a machine says of itself: tracing on another machine would give another program
MACHINE = {"default_backend", "platform", "device_kind", "memory_stats", "process_count", "process_index", "environ"}


@dataclass
class Definitions:
    """The definitions of a module.

    Attributes:
        functions: those of the module and of its classes, by `name` or `Class.name`, which may occur twice (setters).
        classes: each class without its functions, as text.
        imports: name -> what is imported, as text.
        statements: the names that every other statement binds, and its text.
    """

    functions: dict[str, list[Function]] = field(default_factory=dict)
    classes: dict[str, str] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    statements: list[tuple[str, str]] = field(default_factory=list)


class _WithoutDocstrings(ast.NodeTransformer):
    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)) and ast.get_docstring(node) is not None:
            node.body[:1] = [] if len(node.body) > 1 else [ast.Pass()]
        return node


@lru_cache(maxsize=64)
def _parse(text: str) -> ast.Module:
    return ast.fix_missing_locations(_WithoutDocstrings().visit(ast.parse(text)))


def same_code(before: str, after: str) -> bool:
    """Tells whether two modules are one program; not where one is no Python."""
    try:
        return _code_of(_parse(before)) == _code_of(_parse(after))
    except (SyntaxError, ValueError, RecursionError):
        return False


def _code_of(tree: ast.Module) -> tuple:
    return _code_key(compile(tree, "module", "exec", dont_inherit=True))


def _code_key(value: Any) -> Any:
    """Identifies bytecode without its positions and the names of locals, and constants by type and content."""
    if isinstance(value, tuple):
        return tuple(map(_code_key, value))
    if isinstance(value, frozenset):
        return "set", sorted(repr(_code_key(item)) for item in value)
    if not isinstance(value, CodeType):
        return type(value).__name__, repr(value)  # as 0.0 == -0.0 and 1 == True
    parameters = value.co_argcount + value.co_kwonlyargcount
    parameters += bool(value.co_flags & 4) + bool(value.co_flags & 8)  # *args, **kwargs
    hidden = value.co_flags & OPTIMIZED and not INTROSPECTION.intersection(value.co_names)
    locals_ = value.co_varnames, value.co_cellvars, value.co_freevars
    names = value.co_varnames[:parameters] if hidden else locals_
    counts = value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, *map(len, locals_)
    constants = _code_key(value.co_consts)
    return value.co_code, value.co_exceptiontable, value.co_flags, counts, names, value.co_names, constants


def functions_of(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Yields the functions of a module and of its classes with their names; what is inside of them belongs to them."""
    for node in tree.body:
        if isinstance(node, FUNCTIONS):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{it.name}", it) for it in node.body if isinstance(it, FUNCTIONS))


def _read(text: str) -> Definitions:
    tree, source = _parse(text), Definitions()
    for name, function in functions_of(tree):
        source.functions.setdefault(name, []).append(function)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            body = [it for it in node.body if not isinstance(it, (*FUNCTIONS, ast.Pass))]
            parts = *node.decorator_list, *node.bases, *node.keywords, *body
            source.classes[node.name] = source.classes.get(node.name, "") + "; ".join(map(ast.dump, parts))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                said = f"{getattr(node, 'level', '')} {getattr(node, 'module', '')} {alias.name} {alias.asname}; "
                source.imports[name] = source.imports.get(name, "") + said
        elif not isinstance(node, FUNCTIONS):
            targets = getattr(node, "targets", [node.target] if hasattr(node, "target") else [])
            source.statements.append((", ".join(map(ast.unparse, targets)), ast.dump(node)))
    return source


def host_changes(path: str, before: Texts, after: Texts, traced: Sequence[set[str]]) -> Iterator[str]:
    """Yields the definitions of a module that changed, as far as the traced programs do not say what they do.

    Args:
        before, after: path -> text of the modules of a package.
        traced: for both, `path:function` of each function of which tracing ran every statement, every test both ways.
    """
    old, new = sides = [_read(texts.get(path, "")) for texts in (before, after)]
    bound = [{*side.functions, *side.classes, *side.imports} for side in sides]
    # a name that is new, or gone, says nothing to a line that did not change
    unknown = {name for name in bound[0] ^ bound[1] if not hasattr(builtins, name)}
    for name in {**old.functions, **new.functions}:
        pair = [side.functions.get(name, []) for side in sides]
        if _key(pair[0]) == _key(pair[1]):
            continue
        seen = all(
            not functions or (f"{path}:{name}" in keys and not _hides(functions))
            for functions, keys in zip(pair, traced, strict=True)
        )
        if not seen or (name not in unknown and _head(pair[0]) != _head(pair[1])):
            yield name
    for name in {**old.classes, **new.classes}:
        by_functions = name in unknown and any(it.startswith(f"{name}.") for it in bound[0] | bound[1])
        if old.classes.get(name) != new.classes.get(name) and not by_functions:
            yield name
    for name in {**old.imports, **new.imports}:
        if old.imports.get(name) != new.imports.get(name) and name not in unknown:
            yield f"import of {name}"
    differing = set(old.statements) ^ set(new.statements)
    yield from sorted({names or "the module" for names, _ in differing})
    if old.statements != new.statements and not differing:
        yield "the order of statements"


def _hides(functions: list[Function]) -> bool:
    """Tells whether functions may leave something that no jaxpr shows, or read what kind of machine this is."""
    nodes = [node for function in functions for node in ast.walk(function)]
    names = {getattr(node, "id", getattr(node, "attr", "")) for node in nodes}
    sets = any(isinstance(it, (ast.Attribute, ast.Subscript)) and not isinstance(it.ctx, ast.Load) for it in nodes)
    return sets or bool(names & MACHINE) or any(isinstance(it, ast.Global) for it in nodes)


def _key(functions: list[Function]) -> list[tuple]:
    return [_code_of(ast.Module([it], [])) for it in functions]


def _head(functions: list[Function]) -> list[list[str]]:
    """Returns what callers rely on that need not be traced: decorators, and values of parameters that are left out."""
    return [
        [ast.dump(x) for x in (*it.decorator_list, *it.args.defaults, *it.args.kw_defaults) if x] for it in functions
    ]
