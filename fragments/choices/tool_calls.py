"""Tool calls in a text."""

import json
import uuid
from typing import Any

BEGIN = "<tool_call>"  # of Hermes, Qwen and others; JSON with a name and arguments follows


FINISH = "</tool_call>"


class ToolCalls:
    """Extracts tool calls from a text as it is generated."""

    def __init__(self) -> None:
        self.held, self.inside, self.count = "", False, 0
        self.searched = 0  # characters of `held` known not to contain the end of a call

    def add(self, new: str, is_end: bool) -> tuple[str, list[dict[str, Any]]]:
        """Adds new text; returns the text outside of calls, and the calls that are complete."""
        self.held += new
        texts, calls = [], []
        while True:
            if self.inside:
                end = self.held.find(FINISH, self.searched)
                if end < 0:
                    self.searched = max(len(self.held) - len(FINISH), 0)
                    break
                call = self.read(self.held[:end])
                if call:
                    calls.append(call)
                else:
                    texts.append(BEGIN + self.held[:end] + FINISH)
                self.held, self.inside = self.held[end + len(FINISH) :], False
            else:
                text, begin, rest = self.held.partition(BEGIN)
                if begin:
                    self.held, self.inside, self.searched = rest, True, 0
                else:
                    begun = next((n for n in range(len(BEGIN) - 1, 0, -1) if text.endswith(BEGIN[:n])), 0)
                    text, self.held = text[: len(text) - begun], text[len(text) - begun :]
                if not self.count or text.strip():  # no line breaks between calls
                    texts.append(text)
                if not begin:
                    break
        if is_end:
            texts.append((BEGIN if self.inside else "") + self.held)
        return "".join(texts), calls

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
