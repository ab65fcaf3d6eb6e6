"""Grammars of answers of a form that the client states: JSON by a schema, a regular expression, tool calls.

Source: OpenAI's API reference, `response_format` and `tool_choice`; vLLM's documentation, `structured_outputs`.
"""

import dataclasses
import json
import re
from typing import Any

from llguidance import LLMatcher

from generator.language import requires, splice
from generator.language.roles import (
    MARKS,
    AnyTokenizer,
    Channels,
    Chat,
    ChatTemplate,
    Completion,
    Format,
    Grammars,
    InputError,
    NamedTool,
    Refusal,
    Thoughts,
    find_thoughts,
    is_text,
)

requires("request_fields", "engine_grammars", "parsed_answers", "serve/serve")

TEXT = r"TEXT: /(.|\n)*/"


FINAL_HEADER = "<|channel|>final<|message|>"  # before an answer in harmony


ANNOTATIONS = {"type", "enum", "const", "title", "description", "default", "examples"}


# of schemas of parameters that can be held to one by one
OBJECT_KEYS = {"properties", "required", "additionalProperties", "$defs", "definitions", "$schema", "x-guidance"}


# white space between values is bounded, as a model could write it without end
JSON_OPTIONS = {"whitespace_flexible": True, "whitespace_pattern": r"[ \n\r\t]{0,24}"}


def json_rule(schema: dict[str, Any]) -> str:
    """Returns the right side of a rule of Lark for JSON that follows a schema, whose own `x-guidance` options win."""
    stated = schema.get("x-guidance")
    options = JSON_OPTIONS | stated if isinstance(stated, dict) else JSON_OPTIONS
    return f"%json {json.dumps(schema | {'x-guidance': options})}"


def spelled(text: str, special: dict[str, int]) -> str:
    """Returns Lark for a text, in which some marks may be special tokens."""
    parts = re.split("(" + "|".join(map(re.escape, special)) + ")", text) if special else [text]
    return " ".join(f"<[{special[part]}]>" if part in special else json.dumps(part) for part in parts if part)


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
        return request.FORM, f"start: {json_rule(schema)}"
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


def call_rules(functions: list[dict[str, Any]], form: Format, special: dict[str, int], opening: str = "") -> str:
    """Returns rules of Lark for a call of one of the functions, behind what opens it, if that is given.

    Where its `parameters` are None, a function takes any arguments.
    """
    rules = ["call: " + " | ".join(f"call_{number}" for number in range(len(functions)))]
    for number, function in enumerate(functions):
        if not re.fullmatch("[a-zA-Z0-9_.:/-]+", name := function["name"]):
            raise InputError(f"{name[:99]!r} is no name of a function: take letters, digits, _ and -")
        before = (form.call[0] % name).removeprefix(opening)
        after = form.call[1]
        rules += [f"call_{number}: {spelled(before, special)} arguments_{number} {spelled(after, special)}"]
        parameters = function.get("parameters", {})
        schema = (parameters or {}) | {"type": "object"}  # arguments are an object, whether the schema says so or not
        if form.argument[0] and parameters is None:
            rules += any_arguments(f"arguments_{number}", form, special)
        elif form.argument[0]:
            rules += argument_rules(f"arguments_{number}", name, schema, form, special)
        else:
            rules += [f"arguments_{number}: {json_rule(schema)}"]
    return "\n".join([*rules, TEXT])


def text_rules(rule: str, after: str, special: dict[str, int]) -> list[str]:
    """Returns rules for any text, and what ends it."""
    if (mark := after.strip()) in special:
        return [f"{rule}: TEXT {spelled(after.lstrip(), special)}"]
    after = spelled(after.partition(mark)[2], special)
    return [f"{rule}: {rule}_text {after}", f"{rule}_text[lazy]: TEXT {json.dumps(mark)}"]


def any_arguments(rule: str, form: Format, special: dict[str, int]) -> list[str]:
    """Returns rules for any arguments that are written one by one."""
    before, middle = (spelled(part, special) for part in form.argument[0].split("%s"))
    each = f"{rule}: ({before} {rule}_name {middle} {rule}_value)*"
    return [each, rf"{rule}_name: /[\w.-]+/", *text_rules(f"{rule}_value", form.argument[1], special)]


def argument_rules(rule: str, name: str, schema: dict[str, Any], form: Format, special: dict[str, int]) -> list[str]:
    """Returns rules for arguments that are written one by one, texts as they are.

    Raises InputError for schemas that say more than such rules can.
    """
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    if not (isinstance(properties, dict) and isinstance(required, list) and all(isinstance(x, str) for x in required)):
        raise InputError(f"the parameters of {name}: properties must be an object, and required a list of names")
    properties = {argument: {} if part is True else part for argument, part in properties.items()}
    for argument, part in properties.items():
        if not (isinstance(part, dict) and isinstance(part.get("enum", []), list)):
            raise InputError(f"the parameters of {name}: {argument} must be a schema whose enum, if any, is a list")
    texts = [argument for argument, part in properties.items() if is_text(part)]
    bounded = [x for x in texts if properties[x].keys() - ANNOTATIONS]
    if (odd := schema.keys() - OBJECT_KEYS - ANNOTATIONS) or bounded or {*required} - {*properties}:
        words = f"{min(odd)} beside properties" if odd else f"more than a type for {bounded or required}"
        raise InputError(f"the parameters of {name} have {words}, which calls of this model's form cannot be held to")
    each, rules = [], []
    shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    after = form.argument[1]
    for place, (argument, part) in enumerate(properties.items()):
        value = f"{rule}_{place}"
        body = f"{spelled(form.argument[0] % argument, special)} {value}"
        each += [f"({body})" if argument in required else f"({body})?"]
        if argument not in texts:
            rules += [f"{value}: {json_rule(part | shared)} {spelled(after, special)}"]
        elif "enum" in part or "const" in part:
            choices = [json.dumps(x) for x in part.get("enum", [part.get("const")]) if isinstance(x, str)]
            if not choices:
                raise InputError(f"the parameters of {name}: no text is a value of {argument}")
            rules += [f"{value}: ({' | '.join(choices)}) {spelled(after, special)}"]
        else:
            rules += text_rules(value, after, special)
    return [f"{rule}: {' '.join(each)}", *rules] if each else [f'{rule}: ""']


def calls_required(functions: list[dict[str, Any]], most: int, form: Format, special: dict[str, int]) -> str:
    """Returns the grammar of one to `most` calls of functions."""
    further = f" ({spelled(form.between, special)} call){{0,{most - 1}}}" if most > 1 else ""
    before, after = (spelled(part, special) for part in form.around)
    return f"start: {before} call{further} {after}\n{call_rules(functions, form, special)}"


def calls_allowed(functions: list[dict[str, Any]], form: Format, special: dict[str, int]) -> str:
    """Returns the grammar of a text with calls in it."""
    opening = form.begins[0]
    if form.name in ("llama3_json", "openai"):  # an answer is either text or calls
        text = f"{spelled(FINAL_HEADER, special)} TEXT" if form.name == "openai" else "/\\s*[^{\\s](.|\\n)*/"
        calls = calls_required(functions, form.most, form, special).removeprefix("start: ")
        return f"start: {text} | calls\ncalls: {calls}"
    begun = form.around[0].removeprefix(opening)
    group = f"{spelled(begun, special)} call" if form.around[0] else "call"
    if form.around[0]:
        group += f" ({spelled(form.between, special)} call)* {spelled(form.around[1], special)}"
    free = (
        f"opening: TEXT <[{special[opening]}]>" if opening in special else f"opening[lazy]: TEXT {json.dumps(opening)}"
    )
    rules = call_rules(functions, form, special, "" if form.around[0] else opening)
    return f"start: (opening {group})* TEXT\n{free}\n{rules}"


def text_or_calls(text: str, calls: str, form: Format, special: dict[str, int]) -> str:
    """Returns the grammar of a text of a form, or of calls in place of it."""
    header = spelled(FINAL_HEADER, special) if form.name == "openai" else ""
    return f"start: {header} text | calls\ntext: %lark {{\n{text}\n}}\ncalls: %lark {{\n{calls}\n}}"


def form_of_calls(
    chat: Chat, form: Format | None, special: dict[str, int], text: tuple[str, str] | None
) -> tuple[str, str] | None:
    """Returns the field that asks for a form of the answer, and the grammar; None if the text is free.

    Args:
        text: the same of the text alone.
    """
    functions = [tool["function"] for tool in chat.tools]
    must_call = chat.tool_choice not in ("none", "auto")
    if not must_call and not (chat.offered and (text or any(function.get("strict") for function in functions))):
        return text
    if form is None:
        if must_call:
            words = "the chat template of this model has no form of calls that is read: use auto, or --tool-call-parser"
            raise Refusal(400, f"tool_choice: {words}", "tool_choice", "unsupported_value")
        return text
    is_named = isinstance(chat.tool_choice, NamedTool)
    most = 1 if is_named or not chat.parallel_tool_calls else form.most
    if not must_call:
        functions = [function if function.get("strict") else function | {"parameters": None} for function in functions]
        if text is None:
            return "tools", calls_allowed(functions, form, special)
        return text[0], text_or_calls(text[1], calls_required(functions, most, form, special), form, special)
    if is_named:
        functions = [function for function in functions if function["name"] == chat.tool_choice.function.name]
    if not functions:
        raise Refusal(400, "tool_choice: names no function in tools: add it there", "tool_choice", "invalid_value")
    return "tool_choice", calls_required(functions, most, form, special)


def behind_thoughts(grammar: str, thoughts: Thoughts | Channels | None, is_final: bool, special: dict[str, int]) -> str:
    """Returns the grammar of an answer that may begin with thoughts, of any text."""
    if thoughts is None:
        return grammar
    if isinstance(thoughts, Channels):
        first = spelled("<|channel|>analysis<|message|>", special)
        last = spelled("<|end|><|start|>assistant", special)
        thought = f"({first} TEXT {last})? {spelled(FINAL_HEADER, special) * is_final}"
        rules = ""
    else:
        first = "" if thoughts.is_begun else spelled(thoughts.begin, special)
        is_token = thoughts.end in special
        thought = f"({first} thought /[ \\n]{{0,4}}/)" + "?" * (not thoughts.is_begun)
        rules = f"thought: TEXT {spelled(thoughts.end, special)}\n" if is_token else ""
        rules = rules or f"thought[lazy]: TEXT {json.dumps(thoughts.end)}\n"
    return f"start: {thought} answer\nanswer: %lark {{\n{grammar}\n}}\n{rules}{TEXT}"


def grammar_of(
    request: Completion | Chat,
    prompt: list[int],
    template: ChatTemplate | None,
    tokenizer: AnyTokenizer,
    form: Format | None,
    grammars: Grammars,
) -> str:
    """Returns the grammar of an answer to a prompt, compiled by now; "" if its text is free. May be slow."""
    field = request.FORM if request.response_format.type != "text" else "structured_outputs"
    is_chat = isinstance(request, Chat)
    special = {text: token for token, text in tokenizer.special.items() if text in MARKS}
    try:
        text = form_of(request)
        if is_chat:
            field = "tools"
            constraint = form_of_calls(request, form, special, text)
        else:
            constraint = text
        field, grammar = constraint or ("", "")
        if grammar and (request.min_tokens or request.ignore_eos):
            raise InputError("decides where the text ends: leave out min_tokens and ignore_eos")
        if grammar and is_chat:
            thoughts = find_thoughts("".join(template.texts.values()), tokenizer, prompt)
            # any text with calls in it has room for thoughts
            if field != "tools" or isinstance(thoughts, Channels):
                grammar = behind_thoughts(grammar, thoughts, constraint is text, special)
        if grammar:
            grammars.matcher(grammar)
    except InputError as error:
        raise Refusal(400, f"{field}: {error}", field) from None
    except RecursionError:
        raise Refusal(400, f"{field}: is nested too deeply", field) from None
    return grammar


@splice("Server.routes", after="parsed_answers")
def _(self):
    self.grammars = Grammars(self.tokenizer, self.engine.engine.ends, self.config.vocab_size)
    self.engine.engine.grammars = self.grammars


@splice("Server.prompts")
def _(self, request, prompts):
    known = self.template, self.tokenizer, self.form, self.grammars
    if request.limit != 0 and (grammar := grammar_of(request, prompts[0][0], *known)):
        prompts = [(prompt, dataclasses.replace(sampling, grammar=grammar)) for prompt, sampling in prompts]


@splice("test_serve_parts.engine", optional=True)
def _(engine):
    engine.ends = frozenset()
