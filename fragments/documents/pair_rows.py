"""Pairs of answers among chats: rows with a chosen and a rejected one, or with a completion and its label."""

import json

from generator.language import proceed, requires, splice
from generator.language.roles import CHAT_MARK, InputError

requires("chat_rows", "data/pairs")


def kinds_of(document: str) -> list[str]:
    """Returns what a document is: ["pairs"], ["pairs", "labels"] of a completion with a label, or []."""
    # by the first field of its JSON
    if document.startswith(f'{CHAT_MARK}{{"chosen"'):
        return ["pairs"]
    is_labeled = document.startswith(f'{CHAT_MARK}{{"completion"') and "label" in json.loads(document[1:])
    return ["pairs", "labels"] if is_labeled else []


def check_kinds(document: str, kinds: list[str], source: str) -> None:
    """Raises InputError if a document is not what those of its source are."""
    if kinds_of(document) != kinds:
        text = f"{source}: the text {document[:40]!r}"
        where = json.loads(document[1:])["source"] if document.startswith(CHAT_MARK) else text
        first = (
            f"has {'a label' if 'labels' in kinds else 'a chosen and a rejected answer'}" if kinds else "has neither"
        )
        problem = "has a chosen and a rejected answer, or a label, or neither, unlike"
        raise InputError(f"{where}: {problem} the first row, which {first}: fix it, or prepare each kind by itself")


def with_other(document: str, other: str) -> str:
    """Returns a completion with a label, and with the completion of another row, which KTO measures as well."""
    if document == other:
        raise InputError(f"{json.loads(document[1:])['source']}: is the only row of its files: give more in one file")
    row = json.loads(document[1:]) | {"other": json.loads(other[1:])}
    return CHAT_MARK + json.dumps(row, ensure_ascii=False)


@splice("chat_fields.names")
def _(fields, has_list, names):
    if not has_list and {"chosen", "rejected"} <= {*fields}:
        names = ["chosen", "rejected", *(["prompt"] if "prompt" in fields else [])]
    elif not has_list and {"completion", "label", "prompt"} <= {*fields}:
        names = ["completion", "label", "prompt"]
    else:
        proceed()
