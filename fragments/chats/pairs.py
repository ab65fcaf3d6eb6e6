"""Pairs of chats as tokens: a chosen and a rejected answer, each after the prompt; completions with a label."""

import json
from typing import Any

import numpy as np

from generator.language import proceed, requires, splice
from generator.language.roles import Chats, without_nulls

requires("pair_rows", "data/pairs")

DESIRABLE = 3  # the answer of a row with a label, true
UNDESIRABLE = 4  # false
OTHER = 5  # that of another row, after the prompt of this one

# of an array [n] for a pair; answer: 1 chosen, 2 rejected; reference: log-likelihood under the reference, or NaN
PAIR = np.dtype([("token", "<i4"), ("weight", "<f2"), ("answer", "i1"), ("reference", "<f4")])


def encode_pair(chats: Chats, pair: dict[str, Any], source: str) -> np.ndarray:
    """Returns the tokens of the chosen answer, then of the rejected one, each as `Chats` encodes it as a completion."""
    prompt = pair.get("prompt")
    answers = [pair.get("chosen"), pair.get("rejected")]
    if {*map(type, answers)} not in ({str}, {list}):
        raise ValueError("chosen and rejected must both be texts, or both lists of messages")
    if answers[0] == answers[1]:
        raise ValueError("chosen and rejected are the same")
    if not isinstance(prompt, list) and isinstance(answers[0], list):  # of whole chats
        same = [a == b for a, b in zip(answers[0][:-1], answers[1][:-1], strict=False)]
        size = [*same, False].index(False)
        if not size:
            raise ValueError("chosen and rejected have no first message in common, and there is no prompt of messages")
        prompt = answers[0][:size]
        answers = [answer[size:] for answer in answers]
    return encode_answers(
        chats, pair | {"prompt": prompt}, {"chosen": (1, answers[0]), "rejected": (2, answers[1])}, source
    )


def encode_labeled(chats: Chats, row: dict[str, Any], source: str) -> np.ndarray:
    """Returns the tokens of a completion with a label, then those of the `other` completion if there is one."""
    label = row.get("label")
    if type(label) is not bool:
        raise ValueError(f"label must be true or false, and is {json.dumps(label)}")
    answers = {"this row": (DESIRABLE if label else UNDESIRABLE, row["completion"])}
    if "other" in row:
        answers[f"the completion of {row['other']['source']}"] = OTHER, row["other"]["completion"]
    return encode_answers(chats, row, answers, source)


def encode_answers(chats: Chats, row: dict[str, Any], answers: dict[str, tuple[int, Any]], source: str) -> np.ndarray:
    """Returns the tokens of answers, each with its number, after the prompt of a row. Raises ValueError with a name."""
    parts = []
    for name, (number, answer) in answers.items():
        try:
            weighted = chats.encode(row | {"completion": answer}, source)
        except (RecursionError, ValueError) as error:
            raise ValueError(f"{name}: {error}") from None
        if isinstance(answer, list) and answer[-1]["role"] != "assistant":
            raise ValueError(f"{name} must end with a message of the assistant")
        if not weighted["weight"][1:].any():
            raise ValueError(f"{name} has no token with a weight")
        parts.append(np.empty(len(weighted), PAIR))
        parts[-1]["token"], parts[-1]["weight"] = weighted["token"], weighted["weight"]
        parts[-1]["answer"] = number
        parts[-1]["reference"] = np.nan
    return np.concatenate(parts)


@splice("Chats.encoded")
def _(self, chat, source, weighted):
    if "chosen" in chat:
        weighted = encode_pair(self, without_nulls(chat), source)
    elif "label" in chat:
        weighted = encode_labeled(self, without_nulls(chat), source)
    else:
        proceed()
