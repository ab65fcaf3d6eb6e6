"""Tool calls in a text, in the format of Hermes, Qwen and others: JSON with a name and arguments between two tags."""

import json
import re
from typing import Any

BEGIN = "<tool_call>"


FINISH = "</tool_call>"


WHITE = re.compile(r"\s*")


def refuse_constant(name: str) -> None:
    """Refuses NaN and Infinity, which Python reads."""
    raise ValueError(f"{name} is no JSON")


DECODER = json.JSONDecoder(parse_constant=refuse_constant)


def as_call(value: Any) -> dict[str, str] | None:
    """Returns the name and the arguments, as JSON, of a call; None if the value is no tool call."""
    try:
        present = [value[name] for name in ("arguments", "parameters") if value.get(name) not in (None, "")]
        arguments = DECODER.decode(present[0]) if present and isinstance(present[0], str) else (present or [{}])[0]
        if not isinstance(arguments, dict):
            return None
        value["name"].encode()  # raises for half of a surrogate pair
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None
    # UTF-8 has no halves of surrogate pairs: they stay escaped
    return {"name": value["name"], "arguments": re.sub("[\ud800-\udfff]", lambda x: f"\\u{ord(x[0]):04x}", text)}


def read_call(text: str, start: int, is_end: bool) -> tuple[dict[str, str] | None, int]:
    """Reads the call behind a tag that ends at `start`, and returns it with the place where it ends.

    Where there is no call, returns None and `start`; if text to come decides that, None and -1. The closing tag may be
    missing at the end of the text and before another call.
    """
    place = WHITE.match(text, start).end()
    if not text.startswith("{", place):
        return None, -1 if place == len(text) and not is_end else start
    try:
        value, end = DECODER.raw_decode(text, place)
    except json.JSONDecodeError as error:
        # cut off in a string, or in a literal, a number or an escape, of at most 9 characters
        is_cut = error.msg.startswith("Unterminated") or error.pos > len(text) - 10
        return None, -1 if is_cut and not is_end else start
    except (RecursionError, ValueError):
        return None, start
    after = WHITE.match(text, end).end()
    rest = text[after : after + len(FINISH)]
    if not (call := as_call(value)):
        return None, start
    if not is_end and any(tag.startswith(rest) and tag != rest for tag in (BEGIN, FINISH)):
        return None, -1
    if FINISH.startswith(rest):
        return call, after + len(rest)
    return (call, end) if rest.startswith(BEGIN) or BEGIN.startswith(rest) else (None, start)


class ToolCalls:
    """Separates tool calls from a text as it is generated: the same ones, however it is split."""

    def __init__(self) -> None:
        self.pending = ""  # text that may belong to a call
        self.count = 0  # calls so far
        self.is_after_call = False  # whether nothing but white space has followed a call

    def add(self, new: str, is_end: bool) -> tuple[str, list[dict[str, str]]]:
        """Adds new text; returns the text outside of calls, and the calls that are complete."""
        self.pending += new
        outside = ""
        calls = []
        place = 0
        while (begin := self.pending.find(BEGIN, place)) >= 0:
            call, place = read_call(self.pending, begin + len(BEGIN), is_end)
            if place < 0:
                break
            if call:
                calls.append(call)
                outside += self.release(begin)
                self.pending = self.pending[place - begin :]
                self.is_after_call = True
                place = 0
        self.count += len(calls)
        partial = next((n for n in range(len(BEGIN) - 1, 0, -1) if self.pending.endswith(BEGIN[:n])), 0)
        until = begin if begin >= 0 else len(self.pending) - (0 if is_end else partial)
        if is_end or not self.is_after_call or self.pending[:until].strip():
            outside += self.release(until)
        return outside, calls

    def release(self, until: int) -> str:
        """Returns what is pending before this place, without white space that is all there is behind a call."""
        text, self.pending = self.pending[:until], self.pending[until:]
        if self.is_after_call and not text.strip():
            return ""
        self.is_after_call = False
        return text
