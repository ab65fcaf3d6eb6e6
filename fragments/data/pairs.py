"""Pairs of answers among the documents of training: a piece of two segments, the chosen one and the rejected one.

Of a row with a label, they are its completion, and that of the row before after the same prompt.
"""

import numpy as np

from generator.language import point, proceed, requires, splice
from generator.language.roles import (
    PAIR,
    PREFERENCES,
    WITH_LABELS,
    Config,
    InputError,
    check_kinds,
    is_cut,
    kinds_of,
    read_description,
    reads_reference,
    warn_of_chat,
    with_other,
)

requires("data/chat_data", "pair_rows", "chats/pairs", "preferences")


def are_pairs(config: Config, tokens: np.ndarray, path: str) -> bool:
    """Returns whether a document is a pair. Raises InputError if --objective is not for what it is."""
    is_pair = tokens.dtype == PAIR
    with point("are_pairs.objectives"):
        of_pairs = PREFERENCES
    is_labeled = is_pair and tokens["answer"][0] > 2
    fitting = ["kto"] if is_labeled else of_pairs if is_pair else ["next_token"]
    if config.objective not in (*fitting, "reference") if is_pair else config.objective in (*of_pairs, "kto"):
        kind = "completions with a label" if is_labeled else "pairs" if is_pair else "no pairs of answers, nor labels"
        problem = f"holds {kind}, not for {config.objective}"
        raise InputError(f"data {path}: {problem}: give other data, or train with --objective {' or '.join(fitting)}")
    if reads_reference(config) and np.isnan(tokens["reference"]).any():
        command = f"python -m {__package__}.reference --checkpoint-dir DIR --data PREPARED --out OUT"
        remedy = f"write them by `{command}`, and give --data OUT"
        point("are_pairs.remedy", remedy)
        raise InputError(
            f"data {path}: has no log-likelihoods of a reference, which --objective {config.objective} compares with: "
            f"{remedy}"
        )
    return is_pair


def pair_pieces(config: Config, pair: np.ndarray, source: str) -> list[dict[str, np.ndarray]]:
    """Returns the piece of a pair; --long-chats says what becomes of one whose answers do not fit together."""
    with point("pair_pieces.answers", config):
        answers = [pair[pair["answer"] == answer] for answer in np.unique(pair["answer"])]
    sizes = [len(answer) - 1 for answer in answers]
    if sum(sizes) > config.sequence_length:
        if not is_cut(config, sum(sizes), source):
            return []
        most = max(config.sequence_length // 2, config.sequence_length - min(sizes))  # the longer one is cut first
        answers = [answer[: most + 1] for answer in answers]
        if np.array_equal(*(answer["token"] for answer in answers)):
            warn_of_chat("whose answers are the same once they are cut, and which are left out", source)
            return []
    if not all(answer["weight"][1:].any() for answer in answers):
        warn_of_chat("without a token that has a loss", source)
        return []
    tokens, targets = (np.concatenate([x[part] for x in answers]) for part in (slice(-1), slice(1, None)))
    piece = {"tokens": tokens["token"], "targets": targets["token"], "weights": targets["weight"].astype(np.float32)}
    if reads_reference(config):
        piece["reference"] = targets["reference"]
    if config.objective in WITH_LABELS:
        piece["answers"] = targets["answer"].astype(np.int32)
    return [piece | {"sizes": np.array([len(answer) - 1 for answer in answers])}]


@splice("open_pieces.pieces", after="chat_data")
def _(config, path, split, i, tokens, cut_pieces):
    if are_pairs(config, tokens, path):
        cut_pieces = pair_pieces(config, tokens, f"document {i} of data {path} ({split})")
    else:
        proceed()


@splice("join_pieces.sizes")
def _(pieces, sizes):
    sizes = [size for piece in pieces for size in piece.pop("sizes", [len(piece["tokens"])])]


@splice("open_prepared.chat")
def _(record, dtype, described, tokens):
    if "pairs" in described:
        tokens = np.frombuffer(record, [("token", dtype), *PAIR.descr[1:]]).astype(PAIR)
    else:
        proceed()


@splice("prepare.chats")
def _(rules, documents):
    rules |= dict.fromkeys(kinds_of(documents[0]), True)


@splice("write_shard.start")
def _(path, documents, numbers):
    description = read_description(str(path.parent)) or {}
    kinds = [kind for kind in ("pairs", "labels") if kind in description]
    others = (documents[i - 1] for i in numbers)  # of the first one, the last one of its files


@splice("write_shard.record", after="chat_data")
def _(text, kinds, others, description):
    check_kinds(text, kinds, description.get("source", ""))
    if "labels" in kinds:
        other = next(others)
        check_kinds(other, kinds, description["source"])
        text = with_other(text, other)
    proceed()
