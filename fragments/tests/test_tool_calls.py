"""Tool calls in a text, however it is split."""

import pytest

from generator.language import requires
from generator.language.roles import FileTokenizer, Request, SamplingParams, module, save_served

requires("tool_calls", "serve")


@pytest.mark.parametrize("step", [1, 4, 100])
def test_tool_calls_are_separated_from_text(tmp_path, step):
    """In the format of Hermes and Qwen; text that is no call stays text, however it is split."""
    openai = module("openai")
    save_served(tmp_path / "hf")
    tokenizer = FileTokenizer(tmp_path / "hf" / "tokenizer.json")
    call = '<tool_call>\n{"name": "look", "arguments": {"at": "größer"}}\n</tool_call>'
    text = f"I look <tool>.{call}\n{call}\n<tool_call>{{}}</tool_call><tool_call>x"
    request = Request([5], SamplingParams(max_tokens=len(text) + 99), tokens=tokenizer.encode(text))
    request.logprobs, request.top_logprobs = [0.0] * len(request.tokens), [{}] * len(request.tokens)
    choice, whole = openai.Choice(request, tokenizer, []), openai.Piece(first=True)
    choice.tool_calls = openai.ToolCalls()
    for count in range(step, len(request.tokens) + step, step):
        count = min(count, len(request.tokens))
        whole.extend(choice.advance(count, "stop" if count == len(request.tokens) else None))
    told = openai.Chat(messages=[]).describe(whole, tokenizer)["message"]
    assert told["content"] == "I look <tool>.<tool_call>{}</tool_call><tool_call>x"
    assert [x["function"] for x in told["tool_calls"]] == [{"name": "look", "arguments": '{"at": "größer"}'}] * 2
    assert whole.finish == "tool_calls" and [x["index"] for x in told["tool_calls"]] == [0, 1]
