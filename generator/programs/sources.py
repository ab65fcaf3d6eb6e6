"""Compares Python sources by bytecode, and finds the changed definitions that no traced program covers."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType
from typing import Any

from generator.programs.effects import FUNCTIONS, Function, Module, Texts, find_effective, mentioned_names

OPTIMIZED = 1  # flag of a function, whose locals are numbered
INTROSPECTION = {"locals", "vars", "eval", "exec", "dir"}  # reads the names of locals


@dataclass
class Definitions:
    """The definitions of a module.

    Attributes:
        functions: of the module and of its classes, by `name` or `Class.name`, which may occur twice (setters).
        classes: name -> text without the functions.
        imports: bound name -> text.
        statements: bound names and text of every other statement.
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


def is_same_code(before: str, after: str) -> bool:
    """Returns whether two modules have the same bytecode; False if one is not valid Python."""
    try:
        return _bytecode_key(_parse(before)) == _bytecode_key(_parse(after))
    except (SyntaxError, ValueError, RecursionError):
        return False


def _bytecode_key(tree: ast.Module) -> tuple:
    return _bytecode_part(compile(tree, "module", "exec", dont_inherit=True))


def _bytecode_part(value: Any) -> Any:
    """Returns a key of bytecode without positions and names of locals; of constants, type and content."""
    if isinstance(value, tuple):
        return tuple(map(_bytecode_part, value))
    if isinstance(value, frozenset):
        return "set", sorted(repr(_bytecode_part(item)) for item in value)
    if not isinstance(value, CodeType):
        return type(value).__name__, repr(value)  # 0.0 == -0.0, and 1 == True
    parameters = value.co_argcount + value.co_kwonlyargcount
    parameters += bool(value.co_flags & 4) + bool(value.co_flags & 8)  # *args, **kwargs
    hidden = value.co_flags & OPTIMIZED and not INTROSPECTION.intersection(value.co_names)
    locals_ = value.co_varnames, value.co_cellvars, value.co_freevars
    names = value.co_varnames[:parameters] if hidden else locals_
    counts = value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, *map(len, locals_)
    constants = _bytecode_part(value.co_consts)
    return value.co_code, value.co_exceptiontable, value.co_flags, counts, names, value.co_names, constants


def functions_of(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Yields name and node of each function of a module and of its classes, but of no inner functions."""
    for node in tree.body:
        if isinstance(node, FUNCTIONS):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{item.name}", item) for item in node.body if isinstance(item, FUNCTIONS))


def _read_definitions(text: str) -> Definitions:
    """Reads the definitions of a module, given its text."""
    tree, result = _parse(text), Definitions()
    for name, function in functions_of(tree):
        result.functions.setdefault(name, []).append(function)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            body = [item for item in node.body if not isinstance(item, (*FUNCTIONS, ast.Pass))]
            parts = *node.decorator_list, *node.bases, *node.keywords, *body
            result.classes[node.name] = result.classes.get(node.name, "") + "; ".join(map(ast.dump, parts))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                text = f"{getattr(node, 'level', '')} {getattr(node, 'module', '')} {alias.name} {alias.asname}; "
                result.imports[name] = result.imports.get(name, "") + text
        elif not isinstance(node, FUNCTIONS):
            targets = getattr(node, "targets", [node.target] if hasattr(node, "target") else [])
            result.statements.append((", ".join(map(ast.unparse, targets)), ast.dump(node)))
    return result


def find_host_changes(path: str, before: Texts, after: Texts, traced: Sequence[set[str]]) -> Iterator[str]:
    """Yields the names of changed definitions of a module that the traced programs do not cover.

    Args:
        before, after: path -> text of a package's modules.
        traced: of both, `path:function` of functions of which tracing ran every statement, and every test both ways.
    """
    old, new = sides = [_read_definitions(texts.get(path, "")) for texts in (before, after)]
    bound = [{*side.functions, *side.classes, *side.imports} for side in sides]
    # an unchanged line cannot refer to a name that only one side binds
    one_sided = {name for name in bound[0] ^ bound[1] if not hasattr(builtins, name)}
    modules = [Module(texts.get(path, "")) for texts in (before, after)]
    effective: set[str] | None = None
    for name in {**old.functions, **new.functions}:
        pair = [side.functions.get(name, []) for side in sides]
        if _function_keys(pair[0]) == _function_keys(pair[1]):
            continue
        effective = find_effective(before) | find_effective(after) if effective is None else effective
        mentions = [mentioned_names(functions) for functions in pair]
        # a call of the package's own code that is there on one side alone
        is_traced = not effective & (mentions[0] ^ mentions[1]) and all(
            not functions or (f"{path}:{name}" in keys and not any(map(module.has_effect, functions)))
            for functions, keys, module in zip(pair, traced, modules, strict=True)
        )
        if not is_traced or (name not in one_sided and _header(pair[0]) != _header(pair[1])):
            yield name
    for name in {**old.classes, **new.classes}:
        has_functions = name in one_sided and any(other.startswith(f"{name}.") for other in bound[0] | bound[1])
        if old.classes.get(name) != new.classes.get(name) and not has_functions:
            yield name
    for name in {**old.imports, **new.imports}:
        if old.imports.get(name) != new.imports.get(name) and name not in one_sided:
            yield f"import of {name}"
    differing = set(old.statements) ^ set(new.statements)
    yield from sorted({names or "the module" for names, _ in differing})
    if old.statements != new.statements and not differing:
        yield "the order of statements"


def _function_keys(functions: list[Function]) -> list[tuple]:
    return [_bytecode_key(ast.Module([function], [])) for function in functions]


def _header(functions: list[Function]) -> list[list[str]]:
    """Returns the decorators and the defaults of parameters, on which callers that are not traced rely."""
    return [
        [ast.dump(part) for part in (*f.decorator_list, *f.args.defaults, *f.args.kw_defaults) if part]
        for f in functions
    ]
