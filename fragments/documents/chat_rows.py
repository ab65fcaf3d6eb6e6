"""Chats among documents: rows with messages, or with a prompt and its completion."""

import functools
import json
import sys
from collections.abc import Collection
from typing import Any

from generator.language import point, requires, setting, splice
from generator.language.roles import InputError

requires("data/chat_data")

CHAT_MARK = "\ufdd3"  # begins a document that is a chat, in front of its JSON: a noncharacter of Unicode


@functools.cache  # once
def warn_of_both(field: str) -> None:
    print(
        f"warning: rows have {field} and messages, and the first counts: --text-field messages reads the chats",
        file=sys.stderr,
    )


def chat_fields(fields: Collection[str], field: str, has_list: bool) -> list[str]:
    """Returns which fields make a row a chat, [] if it is a text; in a row that is left out, the first is null.

    A row is a chat if its field of the text is not there, or holds a list of messages, as `has_list` says.
    """
    if field in fields and not has_list:
        if "messages" in fields:
            warn_of_both(field)
        return []
    with point("chat_fields.names", fields, has_list):
        names = [field] if has_list else ["messages"] if "messages" in fields else ["completion", "prompt"]
    more = [name for name in ("tools", "chat_template_kwargs") if name in fields]
    return names + more if {*names} <= {*fields} else []


def text_or_chat(row: Any, field: str) -> Any:
    """Returns the text of a row, or the fields of a chat; None if it is null."""
    value = row.get(field) if isinstance(row, dict) else None
    has_list = isinstance(value, list) and all(isinstance(message, dict) for message in value)
    names = chat_fields(row, field, has_list) if isinstance(row, dict) else []
    if not names:
        return row[field]
    chat = {"messages" if name == field else name: row[name] for name in names}
    return None if row[names[0]] is None else chat


@splice("as_text.value")
def _(value, source):
    if isinstance(value, dict) and value.keys() & setting("answers_of_chats"):
        try:
            value = CHAT_MARK + json.dumps(value | {"source": source}, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError) as cause:
            raise InputError(f"{source}: is no chat: {cause}: fix it, or leave it out") from None


@splice("open_jsonl.value")
def _(line, field, value):
    value = text_or_chat(json.loads(line), field)
