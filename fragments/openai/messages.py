"""Chat requests: messages and tools; and the parsing of requests."""

import json
import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from generator.language import point
from generator.language.roles import (
    IGNORED,
    NEUTRAL,
    UNSUPPORTED,
    AnyTokenizer,
    ChatTemplate,
    Completion,
    Fields,
    Likeliest,
    Piece,
    Refusal,
    TemplateError,
    TooLong,
    chat_logprobs,
    code_of_field,
    drop_nulls,
    excess_of,
    for_template,
    too_long,
    warn_ignored,
)


class Part(msgspec.Struct):
    type: str
    text: str | None = None

    def __post_init__(self) -> None:
        if self.type != "text":
            raise ValueError(f"this model takes text alone, and no part of type {self.type[:40]!r}")
        if self.text is None:
            raise ValueError("a part of type text needs a text")


class CalledFunction(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: str = "{}"


class ToolCall(msgspec.Struct, forbid_unknown_fields=True):
    function: CalledFunction
    id: str = ""
    type: Literal["function"] = "function"
    index: int = 0  # in streams


class ChatMessage(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    name: str = ""
    reasoning_content: str = ""
    tool_calls: list[ToolCall] = []
    tool_call_id: str = ""
    annotations: Annotated[list[Any], Meta(max_length=0)] = []

    def for_template(self) -> dict[str, Any]:
        """Returns the message as chat templates expect it."""
        return for_template(msgspec.to_builtins(self))


class Function(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    point("Function.fields")


class Tool(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["function"]
    function: Function


class Chat(Fields):
    """A request to /v1/chat/completions."""

    PREFIX, OBJECT, CHUNK, INPUT = "chatcmpl", "chat.completion", "chat.completion.chunk", "messages"
    echo = False
    prompts = (None,)
    least = 1  # an answer gets what is left of the context

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    tools: list[dict[str, Any]] = msgspec.field(default_factory=list)
    with point("Chat.tool_choice"):
        tool_choice: Literal["none", "auto"] = "auto"
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    logprobs: bool = False
    top_logprobs: Likeliest = 0
    reasoning_effort: str = ""  # a variable of the template, where it reads one
    point("Chat.fields")

    @property
    def likeliest(self) -> int | None:
        return self.top_logprobs if self.logprobs else None

    @property
    def offered(self) -> list[dict[str, Any]]:
        """Returns the tools that may be called."""
        return self.tools if self.tool_choice != "none" else []

    def template_names(self, template: ChatTemplate) -> dict[str, Any]:
        """Returns variables for the template, beside messages and tools. Warns of what it does not read."""
        if bad := self.chat_template_kwargs.keys() & {"messages", "tools", "add_generation_prompt", *template.names}:
            raise Refusal(400, f"chat_template_kwargs: must not set {min(bad)}", "chat_template_kwargs")
        if self.offered and not template.reads("tools"):
            warn_ignored("tools")
        if self.reasoning_effort and not template.reads("reasoning_effort"):
            warn_ignored("reasoning_effort")
        elif self.reasoning_effort:
            return {"reasoning_effort": self.reasoning_effort} | self.chat_template_kwargs
        return self.chat_template_kwargs

    def encode(self, tokenizer: AnyTokenizer, template: ChatTemplate | None, room: int, most: int) -> list[list[int]]:
        if template is None:
            raise Refusal(400, "the tokenizer has no chat template: use /v1/completions", self.INPUT)
        if len(self.messages) > room:
            raise too_long(room, f"there are {len(self.messages)} messages", self.INPUT)
        if self.top_logprobs and not self.logprobs:
            raise Refusal(400, "top_logprobs: needs logprobs, true", "top_logprobs")
        try:
            msgspec.convert(self.tools, list[Tool])
        except msgspec.ValidationError as error:
            raise Refusal(400, f"tools: {error}", "tools", code_of_field(str(error))) from None
        names = self.template_names(template)
        last = self.messages[-1]
        if self.continue_final_message and (self.add_generation_prompt or last.role != "assistant"):
            words = "needs a last message of the assistant, and add_generation_prompt false"
            raise Refusal(400, f"continue_final_message: {words}", "continue_final_message")
        flags = self.add_generation_prompt, self.continue_final_message
        try:
            messages = [message.for_template() for message in self.messages]
            point("Chat.messages", messages, template)
            return [template.encode(messages, self.offered or None, *flags, most, names)]
        except TooLong:
            raise too_long(room, f"the messages make more than {most:,} characters", self.INPUT) from None
        except RecursionError:
            raise Refusal(400, "the arguments of a tool call, or a tool, are nested too deeply", self.INPUT) from None
        except TemplateError as error:
            raise Refusal(400, f"the chat template rejects these messages: {error}", self.INPUT) from None

    def describe(self, piece: Piece, tokenizer: AnyTokenizer) -> dict[str, Any]:
        scores = chat_logprobs(piece.scores, tokenizer) if self.likeliest is not None else None
        message: dict[str, Any] = {"content": piece.text} | ({"role": "assistant"} if piece.first else {})
        point("Chat.told", piece, message)
        return {"delta" if self.stream else "message": message, "logprobs": scores}


def check_size(fields: dict[str, Any]) -> None:
    """Raises Refusal if a field has too many lists and objects."""
    for field, value in fields.items():
        if excess := excess_of(value):
            raise Refusal(400, f"{field[:40] or 'a field'}: {excess}", field[:40], "invalid_value")


def read_fields(content: bytes, kind: type[Completion | Chat], defaults: dict[str, float]) -> Completion | Chat:
    """Parses a request from JSON, with defaults of a checkpoint for what it leaves out."""
    try:
        fields = msgspec.json.decode(content + b" " * 6)  # or half of a surrogate pair near the end is "truncated"
        if isinstance(fields, dict):
            check_size(fields)
            sent = {key: x for key, x in drop_nulls(fields).items() if key not in IGNORED}
            with point("read_fields.ignored", kind):
                ignored = UNSUPPORTED
            for key in sent.keys() & ignored:
                if sent.pop(key) is not True:  # as parallel_tool_calls may be
                    warn_ignored(key)
            fields = defaults | {key: x for key, x in sent.items() if key not in NEUTRAL or x != NEUTRAL[key]}
            point("read_fields.found", fields, kind)
            with point("read_fields.refused", fields):
                for key in fields.keys() & NEUTRAL:
                    raise Refusal(400, f"{key}: only {json.dumps(NEUTRAL[key])} is supported", key, "unsupported_value")
        return msgspec.convert(fields, kind, str_keys=True)
    except RecursionError:
        raise Refusal(
            400, "the request has too many lists or objects within each other", None, "invalid_value"
        ) from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        problem = re.sub(r"(?s)^(.{200}).{100,}(.{200})$", r"\1 ... \2", str(error))  # it may quote what was sent
        param = re.search(r"(?:\$\.|\$\[\.\.\.\] - at `\$\.|field `)(\w{1,64})", problem)
        what = "" if isinstance(error, msgspec.ValidationError) else "not valid UTF-8 JSON: "
        raise Refusal(400, f"{what}{problem}", param and param[1], code_of_field(str(error))) from None
