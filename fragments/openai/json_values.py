"""Values of JSON in requests: without null, and not too deep."""

from typing import Any

from generator.language import point

MOST_LEVELS = 200  # of lists and objects within each other; Python's own limit allows more, but not all that follows


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


def is_deeper(value: Any, levels: int) -> bool:
    """Returns whether a JSON value has more lists or objects within each other, without recursion."""
    values = [value] if isinstance(value, (dict, list)) else []
    while values and levels:
        inner = (part for x in values for part in (x.values() if isinstance(x, dict) else x))
        values = [part for part in inner if isinstance(part, (dict, list))]
        levels -= 1
    return bool(values)


def too_deep(fields: dict[str, Any]) -> str:
    """Returns the name of a field with more than MOST_LEVELS levels, or "" if there is none."""
    return next((field[:40] or "a field" for field in fields if is_deeper(fields[field], MOST_LEVELS)), "")
