"""Grammars of answers of a form that the client states: JSON by a schema, a regular expression, tool calls.

Source: OpenAI's API reference, `response_format` and `tool_choice`; vLLM's documentation, `structured_outputs`.
"""

import dataclasses
import json
from typing import Any

from llguidance import LLMatcher

from generator.language import requires, splice
from generator.language.roles import (
    BEGIN,
    FINISH,
    Chat,
    ChatTemplate,
    Completion,
    Grammars,
    InputError,
    NamedTool,
    Refusal,
)

requires("request_fields", "engine_grammars", "tool_calls", "serve/serve")

CALL_END = f"}}\n{FINISH}"


MOST_CALLS = 16  # in an answer, where calls are required


# white space between values is bounded, as a model could write it without end
JSON_OPTIONS = {"whitespace_flexible": True, "whitespace_pattern": r"[ \n\r\t]{0,24}"}


def json_rule(schema: dict[str, Any]) -> str:
    """Returns the right side of a rule of Lark for JSON that follows a schema, whose own `x-guidance` options win."""
    stated = schema.get("x-guidance")
    options = JSON_OPTIONS | stated if isinstance(stated, dict) else JSON_OPTIONS
    return f"%json {json.dumps(schema | {'x-guidance': options})}"


def read_schema(text: str | dict[str, Any]) -> dict[str, Any]:
    """Returns a schema, given as an object or as JSON text. Raises InputError for anything else."""
    try:
        schema = json.loads(text) if isinstance(text, str) else text
    except ValueError as error:
        raise InputError(f"json: not valid JSON: {error}") from None
    if not isinstance(schema, dict):
        raise InputError("json: a schema must be an object")
    return schema


def form_of(request: Completion | Chat) -> tuple[str, str] | None:
    """Returns the field that asks for a form of the text, and the grammar; None if the text is free."""
    form, outputs = request.response_format, request.structured_outputs
    if form.type != "text" and outputs:
        raise InputError("cannot be combined with structured_outputs: leave one out")
    if form.type != "text":
        schema = form.json_schema.schema if form.json_schema else {"type": "object"}
        return "response_format", f"start: {json_rule(schema)}"
    if outputs is None:
        return None
    if outputs.json is not None:
        grammar = f"start: {json_rule(read_schema(outputs.json))}"
    elif outputs.regex is not None:
        grammar = json.loads(LLMatcher.grammar_from_regex(outputs.regex))["grammars"][0]["lark_grammar"]
    elif outputs.choice is not None:
        grammar = f"start: {' | '.join(json.dumps(text) for text in outputs.choice)}"
    elif outputs.grammar is not None:
        grammar = outputs.grammar
    else:
        grammar = f"start: {json_rule({'type': 'object'})}"
    return "structured_outputs", grammar


def call_rules(functions: list[dict[str, Any]], tag: str) -> str:
    """Returns rules of Lark for a call of one of the functions; `tag` is what matches the opening tag."""
    rules = ["call: " + " | ".join(f"call_{number}" for number in range(len(functions)))]
    for number, function in enumerate(functions):
        begin = f'\n{{"name": {json.dumps(function["name"])}, "arguments": '
        # arguments are an object, whether the schema says so or not
        schema = function.get("parameters", {}) | {"type": "object"}
        rules += [f"call_{number}: {tag} {json.dumps(begin)} arguments_{number} {json.dumps(CALL_END)}"]
        rules += [f"arguments_{number}: {json_rule(schema)}"]
    return "\n".join(rules)


def calls_required(functions: list[dict[str, Any]], most: int) -> str:
    """Returns the grammar of one to `most` calls of functions."""
    further = f' ("\\n" call){{0,{most - 1}}}' if most > 1 else ""
    return f"start: call{further}\n{call_rules(functions, json.dumps(BEGIN))}"


def calls_allowed(functions: list[dict[str, Any]]) -> str:
    """Returns the grammar of a text with calls in it; those of functions that are `strict` follow their schemas."""
    described = [function if function.get("strict") else function | {"parameters": {}} for function in functions]
    text = f"start: call* TEXT\nTEXT: /(.|\\n)*/\nopening[lazy]: TEXT {json.dumps(BEGIN)}"
    return f"{text}\n{call_rules(described, 'opening')}"


def form_of_calls(chat: Chat, template: ChatTemplate) -> tuple[str, str] | None:
    """Returns the field that asks for tool calls, and the grammar; None if the text is free."""
    functions = [tool["function"] for tool in chat.tools]
    must_call = chat.tool_choice not in ("none", "auto")
    if not must_call and not (chat.offered and any(function.get("strict") for function in functions)):
        return None
    if not any(BEGIN in text for text in template.texts.values()):
        if must_call:
            words = f"the chat template of this model has no {BEGIN}, the form of calls that is read: use auto"
            raise Refusal(400, f"tool_choice: {words}", "tool_choice", "unsupported_value")
        return None
    if not must_call:
        return "tools", calls_allowed(functions)
    if isinstance(chat.tool_choice, NamedTool):
        functions = [function for function in functions if function["name"] == chat.tool_choice.function.name]
    if not functions:
        raise Refusal(400, "tool_choice: names no function in tools: add it there", "tool_choice", "invalid_value")
    return "tool_choice", calls_required(functions, 1 if isinstance(chat.tool_choice, NamedTool) else MOST_CALLS)


def grammar_of(request: Completion | Chat, template: ChatTemplate | None, grammars: Grammars) -> str:
    """Returns the grammar of an answer, compiled by now; "" if its text is free. May be slow."""
    field = "response_format" if request.response_format.type != "text" else "structured_outputs"
    try:
        calls = form_of_calls(request, template) if isinstance(request, Chat) else None
        text = form_of(request)
        if calls and text:
            raise InputError(f"cannot be combined with {calls[0]}: leave one out")
        field, grammar = calls or text or ("", "")
        if grammar and (request.min_tokens or request.ignore_eos):
            raise InputError("decides where the text ends: leave out min_tokens and ignore_eos")
        if grammar:
            grammars.matcher(grammar)
    except InputError as error:
        raise Refusal(400, f"{field}: {error}", field) from None
    except RecursionError:
        raise Refusal(400, f"{field}: is nested too deeply", field) from None
    return grammar


@splice("Server.routes")
def _(self):
    self.grammars = Grammars(self.tokenizer, self.engine.engine.ends, self.config.vocab_size)
    self.engine.engine.grammars = self.grammars


@splice("Server.prompts")
def _(self, request, prompts):
    if request.limit != 0 and (grammar := grammar_of(request, self.template, self.grammars)):
        prompts = [(prompt, dataclasses.replace(sampling, grammar=grammar)) for prompt, sampling in prompts]


@splice("test_serve_parts.engine", optional=True)
def _(engine):
    engine.ends = frozenset()
