"""Tool calls of answers."""

import dataclasses
import uuid
from typing import Any

from generator.language import requires, splice
from generator.language.roles import ToolCalls

requires("tool_parser")


@splice("Piece.fields")
def _():
    calls: list[dict[str, Any]] = dataclasses.field(default_factory=list)  # tool calls


@splice("Piece.extend")
def _(self, piece):
    self.calls += piece.calls


@splice("Choice.start")
def _(self):
    self.tool_calls: ToolCalls | None = None  # set where its text may have some


@splice("Choice.advanced")
def _(self, piece):
    if self.tool_calls:
        first = self.tool_calls.count
        piece.text, functions = self.tool_calls.add(piece.text, is_end=bool(self.finish))
        piece.calls = [
            {"index": index, "id": f"call_{uuid.uuid4().hex}", "type": "function", "function": function}
            for index, function in enumerate(functions, first)
        ]
        piece.finish = "tool_calls" if self.finish == "stop" and self.tool_calls.count else self.finish


@splice("Chat.told")
def _(piece, message):
    if piece.calls:
        message |= {"content": piece.text or None, "tool_calls": piece.calls}
