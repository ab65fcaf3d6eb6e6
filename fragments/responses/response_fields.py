"""Requests to /v1/responses, as chats.

Source: OpenAI's API reference, `responses`.
"""

from typing import Any

import msgspec

from generator.language import requires, splice
from generator.language.roles import Chat, Refusal

requires("openai/messages", "parsed_answers", "structured/request_fields")

# fields of a response, and what they are called in a chat
SAME = {
    "max_output_tokens": "max_completion_tokens",
    **{name: name for name in ("model", "temperature", "top_p", "stream", "parallel_tool_calls", "prompt_cache_key")},
    **{name: name for name in ("top_k", "min_p", "top_logprobs", "repetition_penalty", "seed")},
}


# fields that ask for nothing here, or for what clients can do without
WITHOUT_EFFECT = {"truncation", "stream_options", "max_tool_calls", "include", "background", "prompt_cache_retention"}


REPEATED = "instructions", "tools", "tool_choice", "text", "temperature", "top_p", "max_output_tokens"


TEXTS = {"input_text", "output_text", "text", "refusal"}


def refuse_field(field: str, words: str) -> Refusal:
    return Refusal(400, f"{field}: {words}", field, "unsupported_value")


def as_content(content: Any) -> Any:
    """Returns the content of a message of a chat."""
    if not isinstance(content, list):
        return content
    parts = [part if isinstance(part, dict) else {"type": str(part)} for part in content]
    return [{"type": "text", "text": x.get("text", x.get("refusal"))} if x.get("type") in TEXTS else x for x in parts]


def as_parts(content: Any) -> list[Any]:
    """Returns the content of a message of a chat as parts."""
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def as_messages(items: Any) -> list[dict[str, Any]]:
    """Returns the messages of a chat; thoughts, texts and calls of one turn are in one message of the assistant."""
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    messages: list[dict[str, Any]] = []

    def turn() -> dict[str, Any]:
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": None})
        return messages[-1]

    for item in items if isinstance(items, list) else [items]:
        kind = item.get("type", "message") if isinstance(item, dict) else type(item).__name__
        if kind == "message" and item.get("role") == "assistant":
            said = turn()
            more = as_content(item.get("content"))
            said["content"] = more if said["content"] is None else [*as_parts(said["content"]), *as_parts(more)]
        elif kind == "message":
            messages.append({"role": item.get("role"), "content": as_content(item.get("content"))})
        elif kind == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments", "{}")}
            call = {"id": item.get("call_id", ""), "type": "function", "function": function}
            turn().setdefault("tool_calls", []).append(call)
        elif kind == "function_call_output":
            output = as_content(item.get("output"))
            messages.append({"role": "tool", "tool_call_id": item.get("call_id", ""), "content": output})
        elif kind == "reasoning":
            parts = item.get("content") or item.get("summary") or []
            thoughts = "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
            said = turn()
            said["reasoning_content"] = said.get("reasoning_content", "") + thoughts
        else:
            raise refuse_field(
                "input", f"no item of type {kind!r} is supported: message, function_call, and its output"
            )
    return messages


def as_tool(tool: Any) -> Any:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        raise refuse_field("tools", "only those of type function are supported")
    function = {key: x for key, x in tool.items() if key != "type" and x is not None}
    return {"type": "function", "function": function}


def as_form(form: dict[str, Any]) -> dict[str, Any]:
    """Returns the form of the text as a field of a chat, if it asks for any."""
    if form.get("type", "text") == "text":
        return {}
    schema = {key: x for key, x in form.items() if key != "type" and x is not None}
    return {"response_format": {"type": form["type"]} | ({"json_schema": schema} if schema else {})}


def as_chat(fields: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of the chat that a response is. Raises Refusal for what this server does not do."""
    fields = dict(fields)
    for stored in ("previous_response_id", "conversation", "prompt"):
        if fields.pop(stored, None):
            raise refuse_field(stored, "this server stores no responses: send all items as input")
    if fields.pop("background", False):
        raise refuse_field("background", "this server stores no responses: leave it out, or stream")
    repeated = {key: fields[key] for key in REPEATED if key in fields}
    chat: dict[str, Any] = {SAME[key]: fields.pop(key) for key in [*SAME] if key in fields}
    if "message.output_text.logprobs" in (fields.get("include") or ()) or "top_logprobs" in chat:
        chat["logprobs"] = True
    instructions = fields.pop("instructions", None)
    chat["messages"] = [{"role": "system", "content": instructions}] * bool(instructions)
    chat["messages"] += as_messages(fields.pop("input", None))
    if tools := fields.pop("tools", None):
        chat["tools"] = [as_tool(tool) for tool in tools]
    if choice := fields.pop("tool_choice", None):
        is_named = isinstance(choice, dict) and choice.get("type") == "function"
        chat["tool_choice"] = choice if not is_named else {"type": "function", "function": {"name": choice.get("name")}}
    reasoning = fields.pop("reasoning", None)
    if effort := (reasoning or {}).get("effort"):
        chat["reasoning_effort"] = effort
    text = fields.pop("text", None)
    chat |= as_form((text or {}).get("format") or {})
    for name in WITHOUT_EFFECT:
        fields.pop(name, None)
    if fields:
        raise Refusal(400, f"{min(fields)}: is no field of a response here", min(fields), "unknown_parameter")
    return chat | {"repeated": repeated}


def read_response(fields: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of the chat that a response is. Raises Refusal for anything else."""
    try:
        return as_chat(fields)
    except (AttributeError, TypeError) as error:
        raise Refusal(400, f"not in the form of OpenAI's responses: {error}", None, "invalid_type") from None


class ResponseRequest(Chat):
    """A request to /v1/responses: a chat, and the fields that its answer repeats."""

    PREFIX, OBJECT, CHUNK, INPUT = "resp", "response", "response", "input"

    repeated: dict[str, Any] = msgspec.field(default_factory=dict)


@splice("read_fields.found")
def _(fields, kind):
    if kind.PREFIX == "resp":
        from generator.language.roles import read_response

        fields = read_response(fields)
