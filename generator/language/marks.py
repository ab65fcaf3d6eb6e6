"""Reads the marked functions of a fragment: its splices and providers."""

from __future__ import annotations

import ast
from typing import Any

from generator.code.traced import Traced
from generator.code.tree import Function, TracedTree, called_name, is_docstring, parameters
from generator.errors import LoomError
from generator.language.grammar import check_decorators, check_woven_function
from generator.language.parts import Provider, Splice


def literal_of(node: ast.AST) -> object:
    """Returns the value of a literal, or None for another expression."""
    try:
        return ast.literal_eval(node)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return None


def find_mark(function: Function, word: str) -> ast.Call | None:
    """Returns the call of a function's decorator of this name, if it has one."""
    calls = (node for node in function.decorator_list if isinstance(node, ast.Call))
    return next((call for call in calls if called_name(call) == word), None)


def _read_arguments(call: ast.Call, source: TracedTree, known: dict[str, type], places: int) -> tuple[list[str], dict]:
    """Returns at most `places` positional arguments of a mark, and its keywords, all literals of the known types."""
    arguments: list[tuple[str, type | None, ast.expr]] = [
        ("", str if number < places else None, argument) for number, argument in enumerate(call.args)
    ]
    arguments += [(keyword.arg or "**", known.get(keyword.arg or ""), keyword.value) for keyword in call.keywords]
    names, options = [], dict[str, Any]()
    for word, kind, argument in arguments:
        value = literal_of(argument)
        if kind is None or not isinstance(value, kind):
            remedy = f"Give the name as a string, then any of {', '.join(known)} as literals."
            raise LoomError(f"cannot read this argument of {called_name(call)}()", source.where(argument), remedy)
        if word:
            options[word] = value
        else:
            names.append(str(value))
    if not all(names) or not names:
        remedy = f'Write @{called_name(call)}("HOST.PLACE").'
        raise LoomError(f"{called_name(call)}() does not say where", source.where(call), remedy)
    return names, options


def read_splices(function: Function, call: ast.Call, source: TracedTree, fragment: str) -> list[Splice]:
    """Returns a splice for each point that the function is marked with."""
    check_decorators(function, source, woven=True)
    names, options = _read_arguments(
        call, source, {"before": str, "after": str, "optional": bool}, places=len(call.args)
    )
    check_woven_function(function, source, "splice")
    statements = [statement for statement in function.body if not is_docstring(statement)]
    if not statements:
        message = f"the splice for {names[0]} has no statements"
        raise LoomError(message, source.where(function), "Write some, or remove it.")
    return [
        Splice(
            point=name,
            reads=tuple(parameter.arg for parameter in parameters(function)),
            body=source.lines(statements[0], statements[-1]),
            before=tuple(options.get("before", "").split()),
            after=tuple(options.get("after", "").split()),
            optional=options.get("optional", False),
            fragment=fragment,
            origin=source.origin(function),
        )
        for name in names
    ]


def read_provider(function: Function, call: ast.Call, source: TracedTree, fragment: str) -> Provider:
    """Returns the provider that a function is marked as."""
    check_decorators(function, source, woven=True)
    (site,), options = _read_arguments(call, source, {"optional": bool, "per_layer": bool}, places=1)
    statements = [statement for statement in function.body if not is_docstring(statement)]
    last = statements[-1] if statements else None
    if not isinstance(last, ast.Return) or last.value is None:
        message = f"the provider of {function.name} does not end in `return VALUE`"
        raise LoomError(message, source.where(function), "Return the value in the last line.")
    check_woven_function(function, source, "provider")
    return Provider(
        value=function.name,
        site=site,
        reads=tuple(parameter.arg for parameter in parameters(function)),
        body=source.lines(statements[0], statements[-2]) if len(statements) > 1 else Traced(),
        returned=source.lines(last),
        annotation=source.code(function.returns) if function.returns else "",
        optional=options.get("optional", False),
        per_layer=options.get("per_layer", False),
        fragment=fragment,
        origin=source.origin(function),
    )
