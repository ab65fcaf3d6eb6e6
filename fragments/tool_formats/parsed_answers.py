"""Tool calls in the form of the chat template, and thoughts apart from the answer.

Source: DeepSeek's API reference, `reasoning_content`; OpenAI's API reference, `parallel_tool_calls`.
"""

from generator.language import requires, splice
from generator.language.roles import (
    UNSUPPORTED,
    Channels,
    Chat,
    Thoughts,
    ToolCallParser,
    find_format,
    join_arguments,
    separate_parts,
)

requires("tool_formats", "separate_parts", "tool_calls", "serve/serve")


@splice("ServeSettings.fields")
def _():
    tool_call_parser: ToolCallParser = "auto"  # the form of tool calls; auto: that of the chat template


@splice("Server.routes")
def _(self):
    texts = self.template.texts.values() if self.template else ()
    self.form = find_format(self.settings.tool_call_parser, texts)


@splice("Chat.fields")
def _():
    parallel_tool_calls: bool = True  # otherwise the first call ends the answer


@splice("Chat.messages")
def _(messages, template):
    join_arguments(messages, template.texts.values())


@splice("read_fields.ignored")
def _(ignored, kind):
    ignored = UNSUPPORTED - {"parallel_tool_calls"} if issubclass(kind, Chat) else UNSUPPORTED


@splice("Piece.fields")
def _():
    reasoning: str = ""


@splice("Piece.extend")
def _(self, piece):
    self.reasoning += piece.reasoning


@splice("Choice.start")
def _(self):
    self.thoughts: Thoughts | Channels | None = None  # set where it may have some
    self.is_single = False  # whether the first call ends it


@splice("Answer.choices")
def _(self, template):
    if isinstance(self.request, Chat):
        texts = "".join(template.texts.values())
        for choice in self.choices:
            choice.is_single = not self.request.parallel_tool_calls
            separate_parts(choice, self.request.offered, self.server.form, texts, self.server.tokenizer)


@splice("Choice.advanced", before="tool_calls")
def _(self, piece):
    if self.thoughts:
        piece.reasoning, piece.text = self.thoughts.add(piece.text, is_end=bool(self.finish))


@splice("Choice.advanced", after="tool_calls")
def _(self, piece):
    if piece.calls:
        piece.calls = [x | {"id": x["id"][-self.tool_calls.form.id_length :]} for x in piece.calls]
        if self.is_single:
            piece.calls = piece.calls[:1]
            piece.finish = "tool_calls"
            self.finish = "stop"


@splice("Chat.told", after="tool_calls")
def _(piece, message):
    if piece.reasoning:
        message |= {"reasoning_content": piece.reasoning}


@splice("test_serve_parts.hints", optional=True)
def _(hints):
    del hints["parallel_tool_calls"]
