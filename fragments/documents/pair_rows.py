"""Pairs of answers among chats: rows with a chosen and a rejected one."""

from generator.language import proceed, requires, splice
from generator.language.roles import CHAT_MARK

requires("chat_rows", "data/pairs")


def is_pair(document: str) -> bool:
    return document.startswith(f'{CHAT_MARK}{{"chosen"')  # the first field of its JSON


@splice("chat_fields.names")
def _(fields, has_list, names):
    if not has_list and {"chosen", "rejected"} <= {*fields}:
        names = ["chosen", "rejected", *(["prompt"] if "prompt" in fields else [])]
    else:
        proceed()
