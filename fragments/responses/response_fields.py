"""Requests to /v1/responses, as chats.

Source: OpenAI's API reference, `responses`.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from generator.language import requires, splice
from generator.language.roles import Chat, Count, Refusal

requires("openai/messages", "parsed_answers", "structured/request_fields")

# fields that a chat has too
SAME = {
    *("model", "temperature", "top_p", "stream", "parallel_tool_calls", "prompt_cache_key", "top_k", "min_p"),
    *("top_logprobs", "repetition_penalty", "seed"),
}


# fields that ask for nothing here, or for what clients can do without; the last three, unless they name something
WITHOUT_EFFECT = {
    *("truncation", "stream_options", "max_tool_calls", "background", "prompt_cache_retention"),
    *("previous_response_id", "conversation", "prompt"),
}


REPEATED = "instructions", "tools", "tool_choice", "text", "temperature", "top_p", "max_output_tokens"


ITEMS = "message", "function_call", "function_call_output", "reasoning"


TEXTS = {"input_text", "output_text", "text", "refusal", "reasoning_text", "summary_text"}


class ItemPart(msgspec.Struct):
    type: str
    text: str | None = None
    refusal: str | None = None

    def __post_init__(self) -> None:
        if self.type not in TEXTS:
            raise ValueError(f"this model takes text alone, and no part of type {self.type[:40]!r}")
        if self.text is None and self.refusal is None:
            raise ValueError(f"a part of type {self.type} needs a text")

    @property
    def said(self) -> str:
        return (self.refusal or "") if self.text is None else self.text


class Item(msgspec.Struct):
    """An item of the input; its type decides which of the fields count."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[ItemPart] | None = None
    summary: list[ItemPart] = []
    name: str | None = None
    arguments: str = "{}"
    call_id: str = ""
    output: str | list[ItemPart] | None = None

    def __post_init__(self) -> None:
        if self.type not in ITEMS:
            raise ValueError(f"no item of type {self.type[:40]!r} is supported, but {', '.join(ITEMS)}")
        needed = {"message": "role", "function_call": "name", "function_call_output": "output"}.get(self.type)
        if needed and getattr(self, needed) is None:
            raise ValueError(f"an item of type {self.type} needs {needed}")
        if self.type == "reasoning" and isinstance(self.content, str):
            raise ValueError("the content of an item of type reasoning is a list of parts")


class FunctionTool(msgspec.Struct, tag_field="type", tag="function", forbid_unknown_fields=True):
    """A function that may be called."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    strict: bool = False


class NamedCall(msgspec.Struct, tag_field="type", tag="function", forbid_unknown_fields=True):
    """The choice of a function that must be called."""

    name: str


class TextFormat(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str = ""
    description: str = ""
    schema: dict[str, Any] | None = None
    strict: bool = True

    def __post_init__(self) -> None:
        if (self.type == "json_schema") != (self.schema is not None):
            raise ValueError("schema belongs to the type json_schema, which needs it")


class ResponseText(msgspec.Struct, frozen=True):
    format: TextFormat = TextFormat()


class Reasoning(msgspec.Struct, frozen=True):
    effort: str = ""


class ResponseFields(msgspec.Struct, forbid_unknown_fields=True):
    """Fields of a response that a chat has in another form, or not at all."""

    input: str | Annotated[list[Item], Meta(min_length=1)]
    instructions: str = ""
    tools: list[FunctionTool] = []
    tool_choice: Literal["none", "auto", "required"] | NamedCall = "auto"
    text: ResponseText = ResponseText()
    reasoning: Reasoning = Reasoning()
    max_output_tokens: Count | None = None
    include: list[str] = []


def refuse_field(field: str, words: str) -> Refusal:
    return Refusal(400, f"{field}: {words}", field, "unsupported_value")


def as_content(content: str | list[ItemPart] | None) -> Any:
    """Returns the content of a message of a chat."""
    return [{"type": "text", "text": part.said} for part in content] if isinstance(content, list) else content


def as_parts(content: Any) -> list[Any]:
    """Returns the content of a message of a chat as parts."""
    return content if isinstance(content, list) else [{"type": "text", "text": content or ""}]


def as_messages(items: str | list[Item]) -> list[dict[str, Any]]:
    """Returns the messages of a chat; thoughts, texts and calls of one turn are in one message of the assistant."""
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    messages: list[dict[str, Any]] = []

    def turn() -> dict[str, Any]:
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": None})
        return messages[-1]

    for item in items:
        content = as_content(item.content)
        if item.type == "message" and item.role == "assistant":
            said = turn()
            said["content"] = content if said["content"] is None else [*as_parts(said["content"]), *as_parts(content)]
        elif item.type == "message":
            messages.append({"role": item.role, "content": content})
        elif item.type == "function_call":
            function = {"name": item.name, "arguments": item.arguments}
            turn().setdefault("tool_calls", []).append({"id": item.call_id, "type": "function", "function": function})
        elif item.type == "function_call_output":
            messages.append({"role": "tool", "tool_call_id": item.call_id, "content": as_content(item.output)})
        else:
            said = turn()
            thoughts = "".join(part["text"] for part in content or as_content(item.summary))
            said["reasoning_content"] = said.get("reasoning_content", "") + thoughts
    return messages


def read_response(fields: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of the chat that a response is.

    Raises Refusal for what this server does not do, and msgspec.ValidationError for unknown fields and other types.
    """
    for stored in ("previous_response_id", "conversation", "prompt"):
        if fields.get(stored):
            raise refuse_field(stored, "this server stores no responses: send all items as input")
    if fields.get("background"):
        raise refuse_field("background", "this server stores no responses: leave it out, or stream")
    response = msgspec.convert(
        {key: x for key, x in fields.items() if key not in SAME | WITHOUT_EFFECT}, ResponseFields
    )
    chat = {key: fields[key] for key in SAME & fields.keys()}
    chat |= {"repeated": {key: fields[key] for key in REPEATED if key in fields}}
    if "message.output_text.logprobs" in response.include or "top_logprobs" in chat:
        chat["logprobs"] = True
    chat["messages"] = [{"role": "system", "content": response.instructions}] * bool(response.instructions)
    chat["messages"] += as_messages(response.input)
    functions = [{key: x for key, x in tool.items() if key != "type"} for tool in fields.get("tools", ())]
    chat["tools"] = [{"type": "function", "function": function} for function in functions]
    is_named = isinstance(response.tool_choice, NamedCall)
    chat["tool_choice"] = {"function": {"name": response.tool_choice.name}} if is_named else response.tool_choice
    chat |= {"reasoning_effort": response.reasoning.effort, "max_completion_tokens": response.max_output_tokens}
    if (form := response.text.format).type != "text":
        schema = {"name": form.name, "description": form.description, "schema": form.schema, "strict": form.strict}
        chat["response_format"] = {"type": form.type, "json_schema": None if form.schema is None else schema}
    return chat


class ResponseRequest(Chat):
    """A request to /v1/responses: a chat, and the fields that its answer repeats."""

    PREFIX, OBJECT, CHUNK, INPUT = "resp", "response", "response", "input"
    FORM = "text"

    repeated: dict[str, Any] = msgspec.field(default_factory=dict)


@splice("read_fields.found")
def _(fields, kind):
    if kind.PREFIX == "resp":
        from generator.language.roles import read_response

        fields = read_response(fields)
