"""Tool calls in a text."""

import dataclasses
import json
import uuid
from typing import Any

from generator.language import splice

BEGIN = "<tool_call>"  # of Hermes, Qwen and others; JSON with a name and arguments follows


FINISH = "</tool_call>"


class ToolCalls:
    """Extracts tool calls from a text as it is generated."""

    def __init__(self) -> None:
        self.held, self.count = "", 0  # text that may belong to a call, and calls so far

    def add(self, new: str, is_end: bool) -> tuple[str, list[dict[str, Any]]]:
        """Adds new text; returns the text outside of calls, and the calls that are complete."""
        self.held += new
        told, calls = "", []
        while True:
            text, begin, rest = self.held.partition(BEGIN)
            inside, finish, rest = rest.partition(FINISH)
            if not finish:
                break
            told += text if text.strip() or not self.count else ""  # no line breaks between calls
            if call := self.read(inside):
                calls.append(call)
            else:
                told += BEGIN + inside + FINISH
            self.held = rest
        begun = next((n for n in range(len(BEGIN) - 1, 0, -1) if text.endswith(BEGIN[:n])), 0)
        certain = len(self.held) if is_end else len(text) if begin else len(text) - begun
        text, self.held = self.held[:certain], self.held[certain:]
        return told + (text if text.strip() or not self.count else ""), calls

    def read(self, text: str) -> dict[str, Any] | None:
        try:
            found = json.loads(text)
            name, arguments = found["name"], found.get("arguments", {})
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
            return None
        if not isinstance(name, str):
            return None
        self.count += 1
        told = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        function = {"name": name, "arguments": told}
        return {"index": self.count - 1, "id": f"call_{uuid.uuid4().hex}", "type": "function", "function": function}


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
        piece.text, piece.calls = self.tool_calls.add(piece.text, is_end=bool(self.finish))
        piece.finish = "tool_calls" if self.finish == "stop" and self.tool_calls.count else self.finish


@splice("Answer.choices")
def _(self, template):
    texts = template.texts.values() if template else ()
    if self.asked.offered and any(BEGIN in text for text in texts):
        for choice in self.choices:
            choice.tool_calls = ToolCalls()


@splice("Chat.told")
def _(piece, told):
    if piece.calls:
        told |= {"content": piece.text or None, "tool_calls": piece.calls}
