"""Pairs of answers among the documents of training: a piece of two segments, the chosen one and the rejected one."""

import numpy as np

from generator.language import proceed, requires, splice
from generator.language.roles import (
    PAIR,
    PREFERENCES,
    WITH_REFERENCE,
    Config,
    InputError,
    is_cut,
    is_pair,
    read_description,
    warn_of_chat,
)

requires("data/chat_data", "pair_rows", "chats/pairs", "preferences")


def are_pairs(config: Config, tokens: np.ndarray, path: str) -> bool:
    """Returns whether a document is a pair. Raises InputError if --objective is not for what it is."""
    is_pair = tokens.dtype == PAIR
    if is_pair != (config.objective in PREFERENCES):
        problem = f"holds {'pairs' if is_pair else 'no pairs of chosen and rejected answers'}"
        advice = f"train with --objective {' or '.join(PREFERENCES) if is_pair else 'next_token'}"
        raise InputError(f"data {path}: {problem}, not for {config.objective}: give other data, or {advice}")
    if config.objective in WITH_REFERENCE and np.isnan(tokens["reference"]).any():
        command = f"python -m {__package__}.reference --checkpoint-dir DIR --data PREPARED --out OUT"
        raise InputError(
            f"data {path}: has no log-likelihoods of a reference, which --objective {config.objective} compares with: "
            f"write them by `{command}`, and give --data OUT"
        )
    return is_pair


def pair_pieces(config: Config, pair: np.ndarray, source: str) -> list[dict[str, np.ndarray]]:
    """Returns the piece of a pair; --long-chats says what becomes of one whose answers do not fit together."""
    answers = [pair[pair["answer"] == answer] for answer in (1, 2)]
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
    if config.objective in WITH_REFERENCE:
        piece["reference"] = targets["reference"]
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
    if is_pair(documents[0]):
        rules |= {"pairs": True}


@splice("write_shard.start")
def _(path):
    pairs = "pairs" in (read_description(str(path.parent)) or ())


@splice("write_shard.record", after="chat_data")
def _(text, pairs):
    if is_pair(text) != pairs:
        raise InputError("pairs and other documents are in one source: prepare each by itself")
    proceed()
