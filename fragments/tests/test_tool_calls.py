"""Tool calls in a text, however it is split."""

import json
import random

import pytest

from generator.language import requires
from generator.language.roles import FileTokenizer, Request, SamplingParams, ToolCalls, module, save_served

requires("tool_calls", "serve")


@pytest.mark.parametrize("step", [1, 4, 100])
def test_tool_calls_are_separated_from_text(tmp_path, step):
    """In the format of Hermes and Qwen; text that is no call stays text, however it is split."""
    choices, openai = module("choices"), module("openai")
    save_served(tmp_path / "hf")
    tokenizer = FileTokenizer(tmp_path / "hf" / "tokenizer.json")
    call = '<tool_call>\n{"name": "look", "arguments": {"at": "größer"}}\n</tool_call>'
    text = f"I look <tool>.{call}\n{call}\n<tool_call>{{}}</tool_call><tool_call>x"
    request = Request([5], SamplingParams(max_tokens=len(text) + 99), tokens=tokenizer.encode(text))
    request.logprobs, request.top_logprobs = [0.0] * len(request.tokens), [{}] * len(request.tokens)
    choice = choices.Choice(request, tokenizer, [])
    piece = choices.Piece(first=True)
    choice.tool_calls = ToolCalls()
    for count in range(step, len(request.tokens) + step, step):
        count = min(count, len(request.tokens))
        piece.extend(choice.advance(count, "stop" if count == len(request.tokens) else None))
    told = openai.Chat(messages=[]).describe(piece, tokenizer)["message"]
    assert told["content"] == "I look <tool>.\n<tool_call>{}</tool_call><tool_call>x"
    assert [x["function"] for x in told["tool_calls"]] == [{"name": "look", "arguments": '{"at": "größer"}'}] * 2
    assert piece.finish == "tool_calls" and [x["index"] for x in told["tool_calls"]] == [0, 1]


# what may stand behind a tag, and the arguments of the call that it is; None: it is none
NESTED = '{"name": "f", "arguments": ' + '{"a":' * 100_000
BODIES = {
    '{"name": "f", "arguments": {"a": 1}}': {"a": 1},
    '\n {"arguments": {"a": {"b": [1, "}"]}}, "name": "f"}\n': {"a": {"b": [1, "}"]}},
    '{"name": "f", "arguments": {"a": "</tool_call>"}}': {"a": "</tool_call>"},
    '{"name": "f", "arguments": {"a": "<tool_call>{}"}}': {"a": "<tool_call>{}"},
    '{"name": "f", "parameters": {"a": 1}}': {"a": 1},
    '{"name": "f", "arguments": null, "parameters": {"a": 1}}': {"a": 1},
    '{"name": "f", "arguments": null}': {},
    '{"name": "f"}': {},
    '{"name": "f", "arguments": ""}': {},
    '{"name": "f", "arguments": "{\\"a\\": 1}"}': {"a": 1},
    r'{"name": "f", "arguments": {"\ud83d": "\ud83d", "b": "\ud83d\ude00"}}': {"\ud83d": "\ud83d", "b": "\U0001f600"},
    '{"name": "f", "arguments": {"a": NaN}}': None,
    '{"name": "f", "arguments": {"a": -Infinity}}': None,
    '{"name": "f", "arguments": {"a": 1e999}}': None,
    '{"name": "f", "arguments": {"a": ' + "9" * 5000 + "}}": None,
    '{"name": "f", "arguments": "a"}': None,
    '{"name": "f", "arguments": [1]}': None,
    r'{"name": "\ud83d", "arguments": {}}': None,
    '{"name": 3, "arguments": {}}': None,
    '{"arguments": {}}': None,
    '{"name": "f", "arguments": {}} then': None,
    '{"name": "f", "arguments": {}': None,
    '{"name": "f" "arguments": {}}': None,
    '["name"]': None,
    "name": None,
    "": None,
    NESTED: None,
}


def separate(pieces: list[str]) -> tuple[str, list[dict]]:
    calls = ToolCalls()
    parts = [calls.add(piece, is_end=False) for piece in pieces] + [calls.add("", is_end=True)]
    return "".join(text for text, _ in parts), [call for _, found in parts for call in found]


@pytest.mark.parametrize("closing", ["</tool_call>", "\n</tool_call>\n", "", "</tool"])
@pytest.mark.parametrize("body", BODIES, ids=lambda x: x[:60])
def test_what_is_a_call(body, closing):
    text, calls = separate([f"I look <tool>.<tool_call>{body}{closing}"])
    if BODIES[body] is None:
        assert (text, calls) == (f"I look <tool>.<tool_call>{body}{closing}", [])
    else:
        (call,) = calls
        assert (text, call["name"], json.loads(call["arguments"])) == ("I look <tool>.", "f", BODIES[body])
        call["arguments"].encode()


def test_calls_do_not_depend_on_how_a_text_is_split():
    draw = random.Random(0)
    count = 0
    bodies = [body for body in BODIES if len(body) < 200]
    calls = [f"<tool_call>{body}</tool_call>" for body in bodies]
    for _ in range(1000):
        parts = draw.choices([*calls, *bodies, "<tool_call>", "</tool_call>", "<tool", "{", "x", " ", "\n"], k=6)
        text = "".join(parts)
        pieces = []
        while sum(map(len, pieces)) < len(text):
            start = sum(map(len, pieces))
            pieces.append(text[start : start + draw.choice([1, 1, 2, 5, 40])])
        whole, found = separate([text])
        assert separate(pieces) == (whole, found), text
        count += len(found)
        assert found or whole == text
    assert count > 300
