"""Readers of tool calls, one for each form.

Sources: as those of the table of formats.
"""

import json
import re
from typing import Any

from generator.language.roles import BEGIN, DECODER, WHITE, as_call, read_call


class CutOffError(Exception):
    """The text ends where more of it decides whether it is a call."""


class Reader:
    """Reads calls in a text that may go on. What is no call raises ValueError."""

    def __init__(self, text: str, place: int, is_end: bool, functions: dict[str, dict[str, Any]]):
        """Takes where to begin, whether the text is complete, and the schemas of the functions that may be called."""
        self.text, self.place, self.is_end, self.functions = text, place, is_end, functions

    def sees(self, mark: str) -> bool:
        """Returns whether a mark is next, behind white space, and passes it."""
        start = WHITE.match(self.text, self.place).end()
        rest = self.text[start : start + len(mark)]
        if rest != mark and mark.startswith(rest) and not self.is_end:
            raise CutOffError
        self.place = start + len(mark) if rest == mark else self.place
        return rest == mark

    def take(self, mark: str) -> None:
        if not self.sees(mark):
            raise ValueError(f"no {mark}")

    def close(self, mark: str) -> None:
        """Passes a mark, of which the end of the text may have cut off some or all."""
        rest = self.text[self.place :].lstrip()
        if self.is_end and mark.startswith(rest):
            self.place = len(self.text)
        else:
            self.take(mark)

    def until(self, *marks: str) -> str:
        """Returns the text before the first of the marks, which stays next."""
        places = [place for mark in marks if (place := self.text.find(mark, self.place)) >= 0]
        if not places:
            raise ValueError("no end") if self.is_end else CutOffError
        start, self.place = self.place, min(places)
        return self.text[start : self.place]

    def name(self, *marks: str) -> str:
        """Returns the name before the first of the marks."""
        name = self.until(*marks).strip()
        if not re.fullmatch(r"[\w.:/-]+", name):
            raise ValueError(f"{name[:99]!r} is no name")
        return name

    def json(self) -> Any:
        start = WHITE.match(self.text, self.place).end()
        try:
            value, self.place = DECODER.raw_decode(self.text, start)
        except json.JSONDecodeError as error:
            # cut off in a string, or in a literal, a number or an escape, of at most 9 characters
            if not self.is_end and (error.msg.startswith("Unterminated") or error.pos > len(self.text) - 10):
                raise CutOffError from None
            raise
        return value


def checked(value: Any) -> dict[str, str]:
    """Returns a call as `as_call` does. Raises ValueError if the value is none."""
    if not (call := as_call(value)):
        raise ValueError("no call")
    return call


def read_hermes(reader: Reader) -> list[dict[str, str]]:
    calls, place = read_call(reader.text, reader.place + len(BEGIN), reader.is_end)
    if not calls:
        raise CutOffError if place < 0 else ValueError("no call")
    reader.place = place
    return calls


def read_llama(reader: Reader) -> list[dict[str, str]]:
    """Reads objects with a name and parameters, and a semicolon between two of them."""
    is_marked = reader.sees("<|python_tag|>")
    calls = []
    while not calls or reader.sees(";"):
        value = reader.json()
        calls.append(checked(value))
        if not is_marked and not (value["name"] in reader.functions and value.keys() & {"parameters", "arguments"}):
            raise ValueError("an answer in JSON, and no call")
    return calls


def read_mistral(reader: Reader) -> list[dict[str, str]]:
    """Reads a list of objects with a name and arguments, or one name and its arguments."""
    reader.take("[TOOL_CALLS]")
    if not (before := reader.until("[", "{").strip()):
        values = reader.json()
        return [checked(value) for value in (values if isinstance(values, list) else [values])]
    if reader.sees("[CALL_ID]"):
        reader.until("[ARGS]")
    reader.sees("[ARGS]")
    return [checked({"name": before, "arguments": reader.json()})]


def read_deepseek(reader: Reader) -> list[dict[str, str]]:
    """Reads a name and its arguments: in V3 behind a type, and in a block of code."""
    reader.sees("<\uff5ctool▁calls▁begin\uff5c>")
    reader.take("<\uff5ctool▁call▁begin\uff5c>")
    name = reader.name("<\uff5ctool▁sep\uff5c>")
    reader.take("<\uff5ctool▁sep\uff5c>")
    if is_block := not reader.sees("{"):
        name = reader.name("```json")
        reader.take("```json")
    else:
        reader.place -= 1
    arguments = reader.json()
    if is_block:
        reader.close("```")
    reader.close("<\uff5ctool▁call▁end\uff5c>")
    reader.sees("<\uff5ctool▁calls▁end\uff5c>")
    return [checked({"name": name, "arguments": arguments})]


def is_text(schema: Any) -> bool:
    """Returns whether values of a schema are texts, which stand in a call as they are."""
    schema = schema if isinstance(schema, dict) else {}
    values = schema.get("enum", [schema["const"]] if "const" in schema else [None])
    are_texts = isinstance(values, list) and values and all(isinstance(value, str) for value in values)
    return schema.get("type") == "string" or bool(are_texts)


def typed(text: str, schema: Any) -> Any:
    """Returns the value of an argument that was written as text: JSON, unless its schema or its form says text."""
    if schema is None or is_text(schema):
        return text
    try:
        return DECODER.decode({"True": "true", "False": "false", "None": "null"}.get(text.strip(), text.strip()))
    except (RecursionError, ValueError):
        return text


def read_tagged(reader: Reader, name: str, key: tuple[str, str], value: tuple[str, str], end: str) -> dict[str, str]:
    """Reads arguments of a function, each with tags around its key and its value, and the end."""
    parameters = reader.functions.get(name, {})
    schemas = parameters.get("properties") if isinstance(parameters.get("properties"), dict) else {}
    arguments = {}
    while reader.sees(key[0]):
        argument = reader.until(key[1]).strip()
        reader.take(key[1])
        if value[0]:
            reader.take(value[0])
        text = reader.until(value[1])
        reader.take(value[1])
        text = text.removeprefix("\n").removesuffix("\n") if not value[0] else text
        arguments[argument] = typed(text, schemas.get(argument))
    if end:
        reader.take(end)
    return checked({"name": name, "arguments": arguments})


def read_qwen3_coder(reader: Reader) -> list[dict[str, str]]:
    is_tagged = reader.sees("<tool_call>")
    reader.take("<function=")
    name = reader.name(">")
    reader.take(">")
    call = read_tagged(reader, name, ("<parameter=", ">"), ("", "</parameter>"), "</function>")
    if is_tagged:
        reader.close("</tool_call>")
    return [call]


def read_glm(reader: Reader) -> list[dict[str, str]]:
    reader.take("<tool_call>")
    name = reader.name("<arg_key>", "</tool_call>")
    tags = ("<arg_key>", "</arg_key>"), ("<arg_value>", "</arg_value>")
    call = read_tagged(reader, name, *tags, "")
    reader.close("</tool_call>")
    return [call]


def read_openai(reader: Reader) -> list[dict[str, str]]:
    """Reads a message to a function, as `Channels` leaves it."""
    header = reader.until("<|message|>")
    reader.take("<|message|>")
    arguments = reader.json()
    reader.close("<|call|>")
    recipient = re.search(r"to=functions\.([\w-]+)", header)
    return [checked({"name": recipient and recipient[1], "arguments": arguments})]
