"""Parameters that ask for a threaded value: `def attend(q, k, v, segment_ids=threaded())`."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from generator.code import syntax
from generator.code.syntax import Source
from generator.code.traced import Edit, Traced
from generator.errors import LoomError
from generator.language.parts import Definition
from generator.thread.functions import Function, read_functions
from generator.thread.graph import CallGraph
from generator.thread.values import Value

WORD = "threaded"


def read_asked(definitions: dict[str, Definition]) -> tuple[dict[str, Definition], list[tuple[str, str]]]:
    """Takes the marks off.

    Returns:
        The definitions as they read without them, and the function and name of each parameter that has one.
    """
    marked = {key: Source(d.text) for key, d in definitions.items() if f"{WORD}(" in d.text.text}
    edits: dict[str, list[Edit]] = {key: [] for key in marked}
    asked = []
    for function in read_functions(marked).values():
        for parameter in function.parameters:
            if syntax.called(parameter.default) == WORD:
                edits[function.key].append(_unmarked(parameter, function))
                asked.append((function.id, parameter.name.value))
    texts = {key: source.traced.edited(edits[key]) for key, source in marked.items()}
    for source in map(Source, texts.values()):
        for node in syntax.walk(source.module):
            if syntax.called(node) == WORD:
                remedy = "Let a function or a method have the parameter."
                raise LoomError(f"{WORD}() is the default of a function's parameter", source.where(node), remedy)
    return definitions | {key: replace(definitions[key], text=text) for key, text in texts.items()}, asked


def _unmarked(parameter: cst.Param, function: Function) -> Edit:
    """`x` of `x=threaded()`, `x=None` of `x=threaded(None)`."""
    source, call = function.source, cst.ensure_type(parameter.default, cst.Call)
    if len(call.args) > 1 or any(argument.keyword or argument.star for argument in call.args):
        message = f"{WORD}() takes at most a default"
        raise LoomError(message, source.where(call), f"Write {WORD}() or {WORD}(None).")
    start, end = source.span(call)
    if call.args:
        first, last = source.span(call.args[0].value)
        return Edit(start, end, source.traced[first:last])
    own = function.node.params.params
    before = own[: next((i for i, other in enumerate(own) if other is parameter), 0)]
    if any(other.default is not None and not _asks(other) for other in before):
        message = f"{parameter.name.value} has no default, and stands after a parameter that has one"
        raise LoomError(message, source.where(call), "Move it before that one.")
    kind = parameter.annotation
    return Edit(source.span(kind.annotation if kind else parameter.name)[1], end, Traced())


def _asks(parameter: cst.Param) -> bool:
    """Whether a parameter is marked, and has no default of its own."""
    call = parameter.default
    return isinstance(call, cst.Call) and syntax.called(call) == WORD and not call.args


def check_calls(graph: CallGraph, values: dict[str, Value], asked: list[tuple[str, str]]) -> None:
    """No call leaves out a parameter that has no default, unless that asks for a value which is threaded."""
    for function, name in asked:
        value = values.get(name)
        if value is None or not (value.providers or value.given):
            message = f"{function} asks for {name}, which no selected fragment provides"
            remedy = f'Select a fragment that has it, or write @provide("SITE") def {name}(...).'
            raise LoomError(message, graph.functions[function].where, remedy)
    for call in graph.calls:
        callee = graph.functions[call.callee]
        for parameter in () if call.scan or call.starred else callee.filled:
            name = parameter.name.value
            if parameter.default or (callee.id, name) in asked or call.supplies(callee, name):
                continue
            where = graph.functions[call.caller].source.where(call.node)
            remedy = f"Pass it, or have it threaded: write `{name}=threaded()` at {callee.where}."
            raise LoomError(f"this call of {callee.id} leaves out {name}", where, remedy)
