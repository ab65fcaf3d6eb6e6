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


def read_call(text: str, start: int, is_end: bool) -> tuple[list[dict[str, str]], int]:
    """Reads the call behind a tag that ends at `start`, and returns it, in a list, with the place where it ends.

    Where there is no call, returns none and `start`; if text to come decides that, none and -1. The closing tag may be
    missing at the end of the text and before another call.
    """
    place = WHITE.match(text, start).end()
    if not text.startswith("{", place):
        return [], -1 if place == len(text) and not is_end else start
    try:
        value, end = DECODER.raw_decode(text, place)
    except json.JSONDecodeError as error:
        # cut off in a string, or in a literal, a number or an escape, of at most 9 characters
        is_cut = error.msg.startswith("Unterminated") or error.pos > len(text) - 10
        return [], -1 if is_cut and not is_end else start
    except (RecursionError, ValueError):
        return [], start
    after = WHITE.match(text, end).end()
    rest = text[after : after + len(FINISH)]
    if not (call := as_call(value)):
        return [], start
    if not is_end and any(tag.startswith(rest) and tag != rest for tag in (BEGIN, FINISH)):
        return [], -1
    if FINISH.startswith(rest):
        return [call], after + len(rest)
    return ([call], end) if rest.startswith(BEGIN) or BEGIN.startswith(rest) else ([], start)
