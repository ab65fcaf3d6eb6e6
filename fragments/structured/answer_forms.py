"""Grammars of answers of a form that the client states: JSON by a schema, a regular expression, tool calls.

Source: OpenAI's API reference, `response_format` and `tool_choice`; vLLM's documentation, `structured_outputs`.
"""

import dataclasses
import json
from typing import Any

from llguidance import LLMatcher, StructTag

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

CALL_END = "}\n" + FINISH


MOST_CALLS = 16  # that an answer may have where tools must be called


# spaces that a model may write between values: with more it could write them for ever
JSON_OPTIONS = {"whitespace_flexible": True, "whitespace_pattern": r"[ \n\r\t]{0,24}"}


def json_rule(schema: Any) -> str:
    """Returns the right side of a rule of Lark for JSON by a schema."""
    root = schema if isinstance(schema, dict) else {} if schema else {"not": {}}
    return f"%json {json.dumps(root | {'x-guidance': JSON_OPTIONS})}"


def form_of(request: Completion | Chat) -> tuple[str, str] | None:
    """Returns the field that asks for a form of the text, and the grammar; None if the text is free."""
    form, outputs = request.response_format, request.structured_outputs
    if form.type == "json_schema":
        return "response_format", f"start: {json_rule(form.json_schema.schema)}"
    if form.type == "json_object" or outputs.json_object:
        field = "response_format" if form.type == "json_object" else "structured_outputs"
        return field, f"start: {json_rule({'type': 'object'})}"
    if outputs.json is not None:
        try:
            schema = json.loads(outputs.json) if isinstance(outputs.json, str) else outputs.json
        except ValueError as error:
            raise Refusal(400, f"structured_outputs: json is no JSON: {error}", "structured_outputs") from None
        return "structured_outputs", f"start: {json_rule(schema)}"
    if outputs.regex is not None:
        return "structured_outputs", LLMatcher.grammar_from_regex(outputs.regex)
    if outputs.choice:
        return "structured_outputs", f"start: {' | '.join(json.dumps(text) for text in outputs.choice)}"
    return ("structured_outputs", outputs.grammar) if outputs.grammar is not None else None


def call_form(function: dict[str, Any]) -> tuple[str, Any]:
    """Returns what a call of a function begins with, and the schema of its arguments."""
    schema = function.get("parameters", {}) | {"type": "object"}  # as arguments are, whether it says so or not
    return f'{BEGIN}\n{{"name": {json.dumps(function["name"])}, "arguments": ', schema


def calls_required(functions: list[dict[str, Any]], most: int) -> str:
    """Returns the grammar of one to `most` calls of functions."""
    rules = []
    for number, function in enumerate(functions):
        begin, schema = call_form(function)
        rules += [f"call_{number}: {json.dumps(begin)} arguments_{number} {json.dumps(CALL_END)}"]
        rules += [f"arguments_{number}: {json_rule(schema)}"]
    one = " | ".join(f"call_{number}" for number in range(len(functions)))
    further = f' ("\\n" call){{0,{most - 1}}}' if most > 1 else ""
    return "\n".join([f"start: call{further}", f"call: {one}", *rules])


def calls_allowed(functions: list[dict[str, Any]]) -> str:
    """Returns the grammar of a text with calls in it; those of functions that are `strict` follow their schemas."""
    tags = []
    for function in functions:
        begin, schema = call_form(function if function.get("strict") else function | {"parameters": {}})
        rule = f"start: {json_rule(schema)}"
        tags.append(StructTag(trigger=BEGIN, begin=begin, grammar=rule, end=CALL_END))
    return StructTag.to_grammar(tags, assume_special=False)


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
        raise Refusal(400, "tool_choice: names no function of tools", "tool_choice", "invalid_value")
    return "tool_choice", calls_required(functions, 1 if isinstance(chat.tool_choice, NamedTool) else MOST_CALLS)


def grammar_of(request: Completion | Chat, template: ChatTemplate | None, grammars: Grammars) -> str:
    """Returns the grammar of an answer, compiled by now; "" if its text is free. May be slow."""
    calls = form_of_calls(request, template) if isinstance(request, Chat) else None
    text = form_of(request)
    if calls and text:
        raise Refusal(400, f"{text[0]}: cannot be combined with {calls[0]}: leave one out", text[0])
    field, grammar = calls or text or ("", "")
    try:
        if grammar:
            grammars.matcher(grammar)
    except InputError as error:
        raise Refusal(400, f"{field}: {error}", field) from None
    return grammar


@splice("Server.routes")
def _(self):
    self.grammars = Grammars(self.tokenizer, self.engine.engine.ends, self.config.vocab_size)
    self.engine.engine.grammars = self.grammars


@splice("Server.prompts")
def _(self, request, prompts):
    if request.limit != 0 and (grammar := grammar_of(request, self.template, self.grammars)):
        prompts = [(prompt, dataclasses.replace(sampling, grammar=grammar)) for prompt, sampling in prompts]
