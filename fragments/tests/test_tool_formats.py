"""Tool calls in the forms of several families, and thoughts, however a text is split."""

import json
import random

import pytest

from generator.language import requires
from generator.language.roles import CALL_FORMATS, Channels, Thoughts, ToolCalls, find_format, join_arguments

requires("tool_formats/tool_formats")

FUNCTIONS = {
    "look": {"properties": {"at": {"type": "string"}, "n": {"type": "integer"}, "all": {"type": "boolean"}}},
    "wait": {},
}
LOOK = "look", {"at": "grö\n5", "n": 5}
WAIT = "wait", {}
LOOK_JSON = json.dumps(LOOK[1], ensure_ascii=False)
BEGINS = "<\uff5ctool▁calls▁begin\uff5c>"
ENDS = "<\uff5ctool▁calls▁end\uff5c>"
BEGIN = "<\uff5ctool▁call▁begin\uff5c>"
SEP = "<\uff5ctool▁sep\uff5c>"
END = "<\uff5ctool▁call▁end\uff5c>"
TAGGED = "<tool_call>\n<function=look>\n<parameter=at>\ngrö\n5\n</parameter>\n<parameter=n>\n5\n</parameter>\n"

# row of CALL_FORMATS, what the templates of its models write, the text outside of calls, the calls
WRITTEN = [
    (0, f"<|channel|>commentary to=functions.look <|constrain|>json<|message|>{LOOK_JSON}<|call|>", "", [LOOK]),
    (0, f" to=functions.look<|channel|>commentary json<|message|>{LOOK_JSON}", "", [LOOK]),
    (1, f"I look.{BEGINS}{BEGIN}function{SEP}look\n```json\n{LOOK_JSON}\n```{END}{ENDS}", "I look.", [LOOK]),
    (
        1,
        f"{BEGINS}{BEGIN}function{SEP}look\n```json\n{LOOK_JSON}\n```{END}\n"
        f"{BEGIN}function{SEP}wait\n```json\n{{}}\n```{END}{ENDS}",
        "",
        [LOOK, WAIT],
    ),
    (2, f"{BEGINS}{BEGIN}look{SEP}{LOOK_JSON}{END}{BEGIN}wait{SEP}{{}}{END}{ENDS}", "", [LOOK, WAIT]),
    (2, f"I look.{BEGINS}{BEGIN}look{SEP}{LOOK_JSON}", "I look.", [LOOK]),
    (3, f"[TOOL_CALLS]look[ARGS]{LOOK_JSON}[TOOL_CALLS]wait[CALL_ID]abcdefghi[ARGS]{{}}", "", [LOOK, WAIT]),
    (4, f'[TOOL_CALLS] [{{"name": "look", "arguments": {LOOK_JSON}, "id": "abcdefghi"}}]', "", [LOOK]),
    (4, f'[TOOL_CALLS][{{"name": "look", "arguments": {LOOK_JSON}}}, {{"name": "wait"}}]', "", [LOOK, WAIT]),
    (
        5,
        "\n<tool_call>look\n<arg_key>at</arg_key>\n<arg_value>grö\n5</arg_value>\n"
        "<arg_key>n</arg_key>\n<arg_value>5</arg_value>\n</tool_call>\n<tool_call>wait\n</tool_call>",
        "\n",
        [LOOK, WAIT],
    ),
    (5, "<tool_call>look<arg_key>all</arg_key><arg_value>true</arg_value></tool_call>", "", [("look", {"all": True})]),
    (6, f"I look.\n{TAGGED}</function>\n</tool_call>", "I look.\n", [LOOK]),
    (
        6,
        f"{TAGGED}</function>\n</tool_call>\n<tool_call>\n<function=wait>\n</function>\n</tool_call>",
        "",
        [LOOK, WAIT],
    ),
    (6, "<function=look>\n<parameter=all>\nFalse\n</parameter>\n</function>", "", [("look", {"all": False})]),
    (7, f'<tool_call>\n{{"name": "look", "arguments": {LOOK_JSON}}}\n</tool_call>', "", [LOOK]),
    (8, f'{{"name": "look", "parameters": {LOOK_JSON}}}', "", [LOOK]),
    (
        8,
        f'<|python_tag|>{{"name": "look", "parameters": {LOOK_JSON}}}; {{"name": "wait", "parameters": {{}}}}',
        "",
        [LOOK, WAIT],
    ),
]
# texts that are not calls, and stay text
BROKEN = [
    (1, f"{BEGINS}{BEGIN}function{SEP}look\n```json\n{{a}}\n```{END}{ENDS}"),
    (2, f"{BEGINS}{BEGIN}look me{SEP}{{}}{END}"),
    (2, f"{BEGINS} no {ENDS}"),
    (3, "[TOOL_CALLS]look[ARGS]x"),
    (4, '[TOOL_CALLS] [{"name": "look"}, 3]'),
    (5, "<tool_call>look\n<arg_key>at</arg_key>\nx</tool_call>"),
    (5, "<tool_call>"),
    (6, f"{TAGGED}</tool_call>"),
    (6, "<function=look><parameter=at>x"),
    (8, '{"name": "unknown", "parameters": {}}'),
    (8, '{"name": "look"}'),
    (8, 'I answer {"name": "look", "parameters": {}}'),
    (8, "<|python_tag|>print(1)"),
]


def separate(row: int, pieces: list[str]) -> tuple[str, list[tuple[str, dict]]]:
    calls = ToolCalls()
    calls.form = CALL_FORMATS[row]
    calls.functions = FUNCTIONS
    channels = Channels()
    text = ""
    found = []
    for piece, is_end in [*((piece, False) for piece in pieces), ("", True)]:
        if CALL_FORMATS[row].name == "openai":
            _, piece = channels.add(piece, is_end)
        more, new = calls.add(piece, is_end)
        text += more
        found += [(call["name"], json.loads(call["arguments"])) for call in new]
    return text, found


def split(text: str, draw: random.Random) -> list[str]:
    pieces = []
    while text:
        n = draw.choice([1, 1, 2, 5, 40])
        pieces.append(text[:n])
        text = text[n:]
    return pieces


@pytest.mark.parametrize(("row", "text", "outside", "calls"), WRITTEN)
def test_calls_of_each_family_are_found(row, text, outside, calls):
    assert separate(row, [text]) == (outside, calls)


@pytest.mark.parametrize(("row", "text"), BROKEN)
def test_what_is_no_call_stays_text(row, text):
    assert separate(row, [text]) == (text, [])


def test_calls_do_not_depend_on_how_a_text_is_split():
    draw = random.Random(0)
    count = 0
    for row in range(len(CALL_FORMATS)):
        parts = [text for i, text, *_ in WRITTEN if i == row] + [text for i, text in BROKEN if i == row]
        parts += [*CALL_FORMATS[row].begins, "x", " ", "\n", "{", "[", "<", "}"]
        for _ in range(200):
            text = "".join(draw.choices(parts, k=4))
            whole = separate(row, [text])
            assert separate(row, split(text, draw)) == whole, text
            count += len(whole[1])
    assert count > 500


THOUGHT = [
    (False, "<think>\na b\n</think>\n\nc d", "a b", "c d"),
    (True, "\na b</think>c", "\na b", "c"),
    (True, "a <b", "a <b", ""),
    (False, "\n<think></think>\nc", "", "c"),
    (False, "c <think>d</think>", "", "c <think>d</think>"),
    (False, "<thin", "", "<thin"),
]


@pytest.mark.parametrize(("is_begun", "text", "thoughts", "answer"), THOUGHT)
def test_thoughts_are_apart_from_the_answer(is_begun, text, thoughts, answer):
    draw = random.Random(0)
    for pieces in ([text], *(split(text, draw) for _ in range(20))):
        found = Thoughts("<think>", "</think>", is_begun)
        parts = [found.add(piece, False) for piece in pieces] + [found.add("", True)]
        assert tuple(map("".join, zip(*parts, strict=True))) == (thoughts, answer)


def test_messages_in_harmony_are_apart():
    text = "<|channel|>analysis<|message|>I think.<|end|><|start|>assistant"
    text += "<|channel|>final<|message|>It is <5|>.<|return|>"
    draw = random.Random(0)
    for pieces in ([text], *(split(text, draw) for _ in range(50))):
        channels = Channels()
        parts = [channels.add(piece, False) for piece in pieces] + [channels.add("", True)]
        assert tuple(map("".join, zip(*parts, strict=True))) == ("I think.", "It is <5|>.")


def test_a_format_is_that_of_the_template_or_that_of_the_flag():
    assert [find_format("auto", form.template) for form in CALL_FORMATS] == [*CALL_FORMATS]
    assert find_format("auto", ["{{ message.content }}"]) is None
    assert find_format("mistral", ["[TOOL_CALLS]{{ name }}[ARGS]"]) is CALL_FORMATS[3]
    assert find_format("mistral", ["<tool_call>"]) is CALL_FORMATS[4]


def test_templates_that_join_arguments_get_texts():
    joined = "{{ '<x>' + tool['function']['arguments'] + '</x>' }}"
    for text, expected in (joined, '{"at": "grö"}'), ("{{ tool['function']['arguments'] | tojson }}", {"at": "grö"}):
        messages = [{"role": "user"}, {"tool_calls": [{"function": {"name": "look", "arguments": {"at": "grö"}}}]}]
        join_arguments(messages, [text])
        assert messages[1]["tool_calls"][0]["function"]["arguments"] == expected
