"""The forms in which families of models write tool calls.

Sources: the published chat templates of Llama 3.1, Mistral Small 3.1, Devstral, Qwen3-Coder, DeepSeek V3 and V3.1,
GLM 4.5 and gpt-oss, and OpenAI's description of harmony; names as in vLLM's documentation, `--tool-call-parser`.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Literal

from generator.language import requires, splice
from generator.language.roles import (
    CutOffError,
    Reader,
    read_deepseek,
    read_glm,
    read_hermes,
    read_llama,
    read_mistral,
    read_openai,
    read_qwen3_coder,
)

requires("separate_calls", "call_readers")

ToolCallParser = Literal[
    "auto", "deepseek_v3", "deepseek_v31", "glm45", "hermes", "llama3_json", "mistral", "openai", "qwen3_coder"
]


@dataclasses.dataclass(frozen=True)
class Format:
    """How one family writes calls; %s stands for the name of a function, and of a parameter."""

    name: str  # of vLLM's parser
    template: tuple[str, ...]  # what all of its chat templates have, and those of the rows below do not
    begins: tuple[str, ...]  # marks with which a call may begin
    read: Callable[[Reader], list[dict[str, str]]]
    call: tuple[str, str]  # before and after the arguments of a call
    around: tuple[str, str] = ("", "")  # all calls
    between: str = "\n"  # two calls
    argument: tuple[str, str] = ("", "")  # before and after each, if they are no JSON
    most: int = 16  # calls in an answer, where calls are required
    id_length: int = 37  # letters of its name for clients at most


CALL_FORMATS = (
    Format(
        *("openai", ("<|channel|>",), ("<|channel|>",), read_openai),
        ("<|channel|>commentary to=functions.%s <|constrain|>json<|message|>", ""),
        most=1,  # as <|call|> ends the answer
    ),
    Format(
        *("deepseek_v3", ("<\uff5ctool▁calls▁begin\uff5c>", "```json")),
        *(("<\uff5ctool▁calls▁begin\uff5c>", "<\uff5ctool▁call▁begin\uff5c>"), read_deepseek),
        (
            "<\uff5ctool▁call▁begin\uff5c>function<\uff5ctool▁sep\uff5c>%s\n```json\n",
            "\n```<\uff5ctool▁call▁end\uff5c>",
        ),
        ("<\uff5ctool▁calls▁begin\uff5c>", "<\uff5ctool▁calls▁end\uff5c>"),
    ),
    Format(
        *("deepseek_v31", ("<\uff5ctool▁calls▁begin\uff5c>",)),
        *(("<\uff5ctool▁calls▁begin\uff5c>", "<\uff5ctool▁call▁begin\uff5c>"), read_deepseek),
        ("<\uff5ctool▁call▁begin\uff5c>%s<\uff5ctool▁sep\uff5c>", "<\uff5ctool▁call▁end\uff5c>"),
        ("<\uff5ctool▁calls▁begin\uff5c>", "<\uff5ctool▁calls▁end\uff5c>"),
        between="",
    ),
    Format(
        *("mistral", ("[TOOL_CALLS]", "[ARGS]"), ("[TOOL_CALLS]",), read_mistral),
        *(("[TOOL_CALLS]%s[ARGS]", ""), ("", ""), ""),
        id_length=9,  # templates refuse others
    ),
    Format(
        *("mistral", ("[TOOL_CALLS]",), ("[TOOL_CALLS]",), read_mistral),
        *(('{"name": "%s", "arguments": ', "}"), ("[TOOL_CALLS][", "]"), ", "),
        id_length=9,
    ),
    Format(
        *("glm45", ("<arg_key>",), ("<tool_call>",), read_glm),
        ("<tool_call>%s\n", "</tool_call>"),
        argument=("<arg_key>%s</arg_key>\n<arg_value>", "</arg_value>\n"),
    ),
    Format(
        *("qwen3_coder", ("<tool_call>", "<function="), ("<tool_call>", "<function="), read_qwen3_coder),
        ("<tool_call>\n<function=%s>\n", "</function>\n</tool_call>"),
        argument=("<parameter=%s>\n", "\n</parameter>\n"),
    ),
    Format(
        *("hermes", ("<tool_call>",), ("<tool_call>",), read_hermes),
        ('<tool_call>\n{"name": "%s", "arguments": ', "}\n</tool_call>"),
    ),
    Format(
        *("llama3_json", ('{"name": function name, "parameters":',), ("<|python_tag|>", "{"), read_llama),
        ('{"name": "%s", "parameters": ', "}"),
        between="; ",
    ),
)

THOUGHTS = ("<think>", "</think>"), ("[THINK]", "[/THINK]")

HARMONY = "start", "channel", "constrain", "message", "end", "call", "return"

# those that are special tokens of some tokenizers, and text of others
MARKS = {
    *("[CALL_ID]", *(f"<|{name}|>" for name in HARMONY), *(mark for pair in THOUGHTS for mark in pair)),
    *(
        mark
        for form in CALL_FORMATS
        for text in (*form.begins, *form.call, *form.around, *form.argument)
        for mark in re.findall(r"<[|\uff5c]\S+?[|\uff5c]>|\[[A-Z_]+\]|</?[a-z_]+>", text)
    ),
}


def find_format(name: ToolCallParser, templates: Iterable[str]) -> Format | None:
    """Returns the format of a parser, or for "auto" that of the chat templates; None if these name none."""
    texts = "".join(templates)
    named = [form for form in CALL_FORMATS if name in ("auto", form.name)]
    fitting = [form for form in named if all(mark in texts for mark in form.template)]
    return next(iter(fitting), None if name == "auto" else named[-1])


def find_begin(text: str, start: int, form: Format, is_first: bool) -> int:
    """Returns where a call may begin; -1: nowhere. A bare brace counts `is_first`, before any other text."""
    places = [text.find(mark, start) for mark in form.begins if mark != "{"]
    if is_first and "{" in form.begins and text.lstrip().startswith("{") and start <= text.index("{"):
        places.append(text.index("{"))
    return min((place for place in places if place >= 0), default=-1)


def read_calls(text: str, begin: int, is_end: bool, form: Format, functions: dict[str, Any]) -> tuple[list, int]:
    """Reads the calls that begin at a mark, and returns them with the place where they end.

    Where there is no call, returns none and the next place; if text to come decides that, none and -1.
    """
    reader = Reader(text, begin, is_end, functions)
    try:
        return form.read(reader), reader.place
    except CutOffError:
        return [], -1
    except (AttributeError, IndexError, RecursionError, TypeError, ValueError):
        return [], begin + 1


# templates that put texts around the arguments of a call, which must be a text for them too: DeepSeek's
JOINED_ARGUMENTS = re.compile(r"\+ *\w+\['function'\]\['arguments'\] *\+")


def join_arguments(messages: list[dict[str, Any]], texts: Iterable[str]) -> None:
    """Makes the arguments of calls texts of JSON, where a template joins them with others."""
    if any(JOINED_ARGUMENTS.search(text) for text in texts):
        for function in (call["function"] for message in messages for call in message.get("tool_calls", ())):
            if not isinstance(function["arguments"], str):
                function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)


@splice("ToolCalls.start")
def _(self):
    self.form = find_format("hermes", ())
    self.functions: dict[str, dict[str, Any]] = {}  # schemas of their parameters
    self.is_first = True  # whether no text has come yet


@splice("ToolCalls.begin")
def _(self, place, begin):
    begin = find_begin(self.pending, place, self.form, self.is_first)


@splice("ToolCalls.read")
def _(self, begin, is_end, read, place):
    read, place = read_calls(self.pending, begin, is_end, self.form, self.functions) if begin >= 0 else ([], -1)


@splice("ToolCalls.partial")
def _(self, partial):
    partial = max(n for mark in self.form.begins for n in range(len(mark)) if self.pending.endswith(mark[:n]))


@splice("ToolCalls.released")
def _(self, text):
    self.is_first = self.is_first and not text.strip()
