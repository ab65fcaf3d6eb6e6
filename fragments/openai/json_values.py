"""Values of JSON in requests: without null, not too deep and not too many."""

from typing import Any

from generator.language import point

MOST_LEVELS = 200  # of lists and objects within each other; Python's own limit allows more, but not all that follows
MOST_VALUES = 20_000  # lists and objects: msgspec converts them in one call, in which no other thread runs


def drop_nulls(value: Any) -> Any:
    """Drops null fields, except where a schema may contain null."""
    if isinstance(value, list):
        return [drop_nulls(part) if isinstance(part, (dict, list)) else part for part in value]
    kept = "parameters", "chat_template_kwargs"
    point("drop_nulls.kept", kept)
    return {
        key: drop_nulls(part) if isinstance(part, (dict, list)) and key not in kept else part
        for key, part in value.items()
        if part is not None
    }


def excess_of(value: Any) -> str:
    """Says what a JSON value has too much of, levels or lists and objects, or "" if it may be read. No recursion."""
    values = [value] if isinstance(value, (dict, list)) else []
    levels = count = 0
    while values:
        levels, count = levels + 1, count + len(values)
        if levels > MOST_LEVELS:
            return f"has more than {MOST_LEVELS} lists or objects within each other"
        if count > MOST_VALUES:
            return f"has more than {MOST_VALUES:,} lists and objects"
        inner = (part for x in values for part in (x.values() if isinstance(x, dict) else x))
        values = [part for part in inner if isinstance(part, (dict, list))]
    return ""
