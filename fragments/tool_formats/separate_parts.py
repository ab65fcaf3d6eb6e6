"""A choice of a chat that keeps thoughts and tool calls apart from the text."""

from typing import Any

from generator.language import requires
from generator.language.roles import AnyTokenizer, Choice, Format, MarkedText, ToolCalls, find_thoughts

requires("tool_formats", "thoughts", "choices/choices")


def separate_parts(
    choice: Choice, tools: list[dict[str, Any]], form: Format | None, texts: str, tokenizer: AnyTokenizer
) -> None:
    """Makes a choice return thoughts, and calls of the tools, apart from the text.

    Args:
        form: of tool calls in the chat template.
        texts: chat templates, whose marks tell whether the model thinks.
    """
    choice.text = MarkedText(tokenizer, choice.request.prompt)
    choice.thoughts = find_thoughts(texts, tokenizer, choice.request.prompt)
    if tools and form:
        offered = [tool["function"] for tool in tools]
        choice.tool_calls = ToolCalls()
        choice.tool_calls.form = form
        choice.tool_calls.functions = {function["name"]: function.get("parameters") or {} for function in offered}
