"""Reads what is marked in a fragment: its splices and its providers."""

from __future__ import annotations

import ast
from typing import Any

import libcst as cst

from generator.code import syntax
from generator.code.syntax import Source
from generator.errors import LoomError
from generator.language.grammar import check_decorators, check_woven_function
from generator.language.parts import Provider, Splice


def literal_of(argument: cst.Arg, source: Source) -> object:
    """The value of an argument, or None where it is not a literal."""
    try:
        return ast.literal_eval(source.code(argument.value))
    except (ValueError, SyntaxError):
        return None


def mark(function: cst.FunctionDef, word: str) -> cst.Call | None:
    for decorator in function.decorators:
        if syntax.called(decorator.decorator) == word:
            return cst.ensure_type(decorator.decorator, cst.Call)
    return None


def _options(call: cst.Call, source: Source, known: dict[str, type], places: int) -> tuple[list[str], dict]:
    """The first arguments of a mark, at most so many places, and its keywords, all literals of the known types."""
    names, options = [], dict[str, Any]()
    for number, argument in enumerate(call.args):
        word, value = argument.keyword.value if argument.keyword else "", literal_of(argument, source)
        kind = (known[word] if word in known else None) if word else (str if number < places else None)
        if argument.star or kind is None or not isinstance(value, kind):
            remedy = f"Give the name as a string, then any of {', '.join(known)} as literals."
            raise LoomError(f"cannot read this argument of {syntax.called(call)}()", source.where(argument), remedy)
        if word:
            options[word] = value
        else:
            names.append(str(value))
    if not all(names) or not names:
        remedy = f'Write @{syntax.called(call)}("HOST.PLACE").'
        raise LoomError(f"{syntax.called(call)}() does not say where", source.where(call), remedy)
    return names, options


def read_splices(function: cst.FunctionDef, source: Source, fragment: str) -> list[Splice]:
    """A splice for each place that the function is marked with."""
    call = cst.ensure_type(mark(function, "splice"), cst.Call)
    check_decorators(function, source, woven=True)
    names, options = _options(call, source, {"before": str, "after": str, "optional": bool}, places=len(call.args))
    check_woven_function(function, source, "splice")
    statements = [s for s in syntax.body(function) if not syntax.is_docstring(s)]
    if not statements:
        message = f"the splice for {names[0]} has no statements"
        raise LoomError(message, source.where(function), "Write some, or remove it.")
    start, end = source.lines(statements[0])[0], source.lines(statements[-1])[1]
    return [
        Splice(
            point=name,
            reads=tuple(p.name.value for p in syntax.parameters(function)),
            body=source.traced[start:end],
            before=tuple(options.get("before", "").split()),
            after=tuple(options.get("after", "").split()),
            optional=options.get("optional", False),
            fragment=fragment,
            origin=source.traced.origin_at(source.span(function)[0]),
        )
        for name in names
    ]


def read_provider(function: cst.FunctionDef, source: Source, fragment: str) -> Provider:
    call = cst.ensure_type(mark(function, "provide"), cst.Call)
    check_decorators(function, source, woven=True)
    (site,), options = _options(call, source, {"optional": bool, "per_layer": bool}, places=1)
    statements = [s for s in syntax.body(function) if not syntax.is_docstring(s)]
    last = syntax.simple(statements[-1]) if statements else None
    if not isinstance(last, cst.Return) or last.value is None:
        raise LoomError(
            f"the provider of {function.name.value} does not end in `return VALUE`",
            source.where(function),
            "Return the value in the last line.",
        )
    check_woven_function(function, source, "provider")
    begin = source.lines(statements[0])[0]
    start, end = source.span(last.value)[0], source.lines(statements[-1])[1]
    return Provider(
        value=function.name.value,
        site=site,
        reads=tuple(p.name.value for p in syntax.parameters(function)),
        body=source.traced[begin : source.lines(statements[-1])[0]],
        result=source.traced[start : end - 1],
        annotation=source.code(function.returns.annotation) if function.returns else "",
        optional=options.get("optional", False),
        per_layer=options.get("per_layer", False),
        fragment=fragment,
        origin=source.traced.origin_at(source.span(function)[0]),
    )
