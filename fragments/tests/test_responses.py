"""The responses API: items in, items out, and events that tell the same."""

import json
import time

import pytest

from generator.language import requires
from generator.language.roles import ask, module, save_served, served, stream

requires("response_answers")

TEMPLATE = (
    "{% if tools %}<tool_call>{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.reasoning_content }}{{ m.content }}"
    "{% for call in m.tool_calls %}{{ call.function.name }}{{ call.function.arguments | tojson }}{% endfor %}"
    "{% endfor %}"
)
PARAMETERS = {"properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
TOOL = {"type": "function", "name": "look", "parameters": PARAMETERS}


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    folder = tmp_path_factory.mktemp("responses") / "hf"
    save_served(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": TEMPLATE}))
    with served(folder, "--max-sequences", "4", "--model", "small") as (_, port, _):
        yield port


def nested(levels: int) -> dict:
    """Returns so many objects within each other."""
    value: dict = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def ask_response(port: int, **fields) -> dict:
    status, _, answer = ask(port, "/v1/responses", {"input": "hi", "max_output_tokens": 30} | fields)
    assert status == 200, answer
    return answer


FORM = {"format": {"type": "json_schema", "name": "x", "schema": PARAMETERS | {"type": "object"}}}
ASKED = {
    "text": {"instructions": "Be short.", "seed": 1, "store": False, "include": ["message.output_text.logprobs"]},
    "calls": {"tools": [TOOL | {"strict": True}], "tool_choice": "required", "parallel_tool_calls": False, "seed": 2},
    "named": {"tools": [TOOL], "tool_choice": {"type": "function", "name": "look"}, "seed": 3},
    "form": {"text": FORM, "seed": 4},
}


@pytest.mark.parametrize("name", ASKED)
def test_events_tell_what_the_whole_response_has(port, name):
    fields = {"max_output_tokens": 200} | ASKED[name] if name != "text" else ASKED[name]
    whole = ask_response(port, **fields)
    events = stream(port, "/v1/responses", **({"input": "hi", "max_output_tokens": 30} | fields))
    assert [event["sequence_number"] for event in events] == [*range(len(events))]
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    last = events[-1]["response"]
    assert events[-1]["type"] == f"response.{last['status']}"
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == last["output"] and last["usage"] == whole["usage"]

    def without_ids(items):
        return [{key: x for key, x in item.items() if key not in ("id", "call_id")} for item in items]

    assert without_ids(done) == without_ids(whole["output"])
    logprobs = [x for event in events if event["type"] == "response.output_text.delta" for x in event["logprobs"]]
    assert (
        logprobs
        == [x for item in done if item["type"] == "message" for x in item["content"][0]["logprobs"]][: len(logprobs)]
    )
    text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    arguments = [event["delta"] for event in events if event["type"] == "response.function_call_arguments.delta"]
    assert text == "".join(x["content"][0]["text"] for x in done if x["type"] == "message")
    assert arguments == [x["arguments"] for x in done if x["type"] == "function_call"]
    if name == "form":
        assert json.loads(text)["n"] in (1, 2)
    elif name == "text":
        assert len(done[0]["content"][0]["logprobs"]) == whole["usage"]["output_tokens"]
    else:
        assert json.loads(arguments[0])["n"] in (1, 2) and len(done) == 1 and done[0]["name"] == "look"


def test_items_are_messages_of_a_chat():
    fields = module("responses")
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "b"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "c"}]},
        {"type": "function_call", "call_id": "1", "name": "look", "arguments": '{"n": 1}'},
        {"type": "function_call", "call_id": "2", "name": "look", "arguments": "{}"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "f"}]},
        {"type": "message", "role": "assistant", "content": "e"},
        {"type": "function_call_output", "call_id": "1", "output": "d"},
        {"type": "function_call_output", "call_id": "2", "output": ""},
    ]
    first, turn, output, empty = fields.read_response({"input": items})["messages"]
    assert first == {"role": "user", "content": [{"type": "text", "text": "a"}]}
    assert turn["reasoning_content"] == "bf" and turn["content"] == [
        {"type": "text", "text": "c"},
        {"type": "text", "text": "e"},
    ]
    assert [call["id"] for call in turn["tool_calls"]] == ["1", "2"]
    assert output == {"role": "tool", "tool_call_id": "1", "content": "d"} and empty["content"] == ""


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("previous_response_id", {"previous_response_id": "resp_1"}),
        ("background", {"background": True}),
        ("tools", {"tools": [{"type": "web_search"}]}),
        ("input", {"input": [{"type": "item_reference", "id": "x"}]}),
        ("unheard_of", {"unheard_of": 1}),
        ("text", {"text": 3}),
        ("text", {"text": {"format": {"type": "json_schema"}}}),
        ("text", {"text": {"format": FORM["format"] | {"schema": {"type": "string", "pattern": "("}}}}),
        ("reasoning", {"reasoning": [3]}),
        ("include", {"include": 3}),
        ("max_output_tokens", {"max_output_tokens": 0}),
        ("tools", {"tools": {"a": 1}}),
        ("tools", {"tools": [TOOL | {"name": 3}]}),
        ("tool_choice", {"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}),
        ("input", {"input": []}),
        ("input", {"input": "x" * 10**5}),
        ("input", {"input": [{"type": "function_call"}]}),
        ("input", {"input": [{"role": "user", "content": [None]}]}),
        ("input", {"input": [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": 3}]}),
        ("metadata", {"metadata": nested(201)}),
        ("tools", {"tools": [TOOL | {"parameters": nested(500)}]}),
    ],
)
def test_what_is_not_supported_is_refused(port, param, fields):
    status, _, answer = ask(port, "/v1/responses", {"input": "hi"} | fields)
    error = answer["error"]
    assert status == 400 and error["param"] == param, answer
    assert len(error["message"]) < 600


def test_more_levels_than_can_be_parsed_are_refused(port):
    status, _, answer = ask(port, "/v1/responses", b'{"input": ' + b"[" * 5000 + b"]" * 5000 + b"}")
    assert status == 400 and "within each other" in answer["error"]["message"]


def test_many_fields_are_refused_at_once(port):
    began = time.monotonic()
    assert ask(port, "/v1/responses", {str(i): i for i in range(100_000)})[0] == 400
    assert time.monotonic() - began < 5


def test_as_many_levels_as_are_read_are_answered(port):
    """In a schema that is kept to, and in what only the template reads and the answer repeats."""
    deep = TOOL | {"parameters": nested(190)}
    assert ask_response(port, input="hi", tools=[deep])["tools"] == [deep]
    assert ask_response(port, metadata=nested(200))["status"] in ("completed", "incomplete")
