"""Chats among the documents of training: supervised fine-tuning."""

import json
import zlib
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import tyro

from generator.language import point, proceed, provide, requires, splice
from generator.language.roles import (
    CHAT_MARK,
    TOKEN_AND_WEIGHT,
    Chats,
    Config,
    InputError,
    open_documents,
    prepare,
    read_description,
    show,
    split_mixture,
    warn_of_chat,
)

requires("data/prepare", "data/mixture", "data/show", "chats", "chat_rows")


def is_cut(config: Config, size: int, source: str) -> bool:
    """Returns whether a chat longer than a sequence is cut at its end, else left out. Raises InputError if refused."""
    if config.long_chats == "refuse":
        raise InputError(
            f"{source}: a chat of {size:,} tokens, more than --sequence-length {config.sequence_length:,}: "
            "raise that, or give other --long-chats"
        )
    is_cut_off = config.long_chats == "truncate"
    warn_of_chat(f"longer than a sequence, {'whose ends are cut off' if is_cut_off else 'which are left out'}", source)
    return is_cut_off


def weighted_pieces(config: Config, tokens: np.ndarray, parts: list[slice], source: str) -> list[dict[str, np.ndarray]]:
    """Returns the pieces of a document that have a loss; a long chat becomes what --long-chats says."""
    if tokens.dtype.names is None:  # a text
        token = tokens
        weight = np.ones(len(tokens), np.float32)
    else:
        token = tokens["token"]
        weight = tokens["weight"].astype(np.float32)
        if len(parts) > 1:
            parts = parts[:1] if is_cut(config, len(tokens), source) else []
        if not weight[1 : config.sequence_length + 1].any():
            warn_of_chat("without a token that has a loss", source)
    # the weight of a target is that of the token that is predicted
    values = {"tokens": token[:-1], "targets": token[1:], "weights": weight[1:]}
    point("weighted_pieces.values", values, tokens, config)
    pieces = ({name: value[part] for name, value in values.items()} for part in parts)
    return [piece for piece in pieces if piece["weights"].any()]


def are_chats(documents: Sequence[str]) -> bool:
    """Returns whether documents are chats, as the first one is."""
    return any(document.startswith(CHAT_MARK) for document in documents[:1])


@provide("open_pieces")
def chats(config, tokenizer) -> Chats:
    return Chats(tokenizer, config.tokenizer, config.loss_on)


@provide("open_tokens", optional=True)
def chats() -> Chats | None:
    return None


@splice("open_pieces.documents", before="prepared")
def _(config, path, texts, counts, documents, chats):
    texts, counts = open_documents(path, config.text_field)
    documents = texts.map(chats)


@splice("open_pieces.pieces")
def _(config, path, split, i, tokens, parts, cut_pieces):
    cut_pieces = weighted_pieces(config, tokens, parts, f"document {i} of data {path} ({split})")


@splice("open_pieces.empty")
def _(problem):
    problem += ", or none with a token that --loss-on chooses"


@splice("join_pieces.weights")
def _():
    pass


@splice("Batches.documents")
def _(self, config, tokenizer):
    sources = [(path, read_description(path)) for _, path in split_mixture(config.data)]
    if any("chat" in x if x else are_chats(open_documents(path, config.text_field)[0]) for path, x in sources):
        rules = Chats(tokenizer, config.tokenizer, config.loss_on).rules(), config.long_chats
        self.documents = zlib.crc32(json.dumps([self.documents, rules]).encode())


@splice("open_tokens.checked")
def _(data, description, chats):
    if chats and "chat" in description and description["chat"] != chats.rules():
        difference = f"its chats are as {description['chat']} makes them, and the settings ask for {chats.rules()}"
        raise InputError(f"data {data}: {difference}: give the first, or prepare the data with the second")


@splice("open_prepared.start")
def _(data):
    described = read_description(data) or {}


@splice("open_prepared.tokens")
def _(record, dtype, described, tokens):
    if "chat" in described:
        with point("open_prepared.chat", record, dtype, described):
            tokens = np.frombuffer(record, [("token", dtype), ("weight", "<f2")]).astype(TOKEN_AND_WEIGHT)
    else:
        proceed()


@provide("prepare", optional=True)
def loss_on() -> Annotated[Literal["assistant", "last", "all"], tyro.conf.arg(help="As --loss-on of train.")]:
    return "assistant"


@splice("prepare.rules")
def _(rules, first, tokenizer, loaded, loss_on):
    documents = first
    if are_chats(documents):
        rules |= {"chat": Chats(loaded, tokenizer, loss_on).rules()}
        point("prepare.chats", rules, documents)


@splice("write_shard.start")
def _(path, tokenizer, name):
    rules = (read_description(str(path.parent)) or {}).get("chat")
    chats = Chats(tokenizer, name, rules["loss_on"]) if rules else None


@splice("write_shard.record")
def _(writer, text, dtype, chats):
    if text.startswith(CHAT_MARK) != (chats is not None):
        raise InputError("texts and chats are in one source: prepare each by itself, and mix them: --data 1:A,1:B")
    if chats:
        tokens = chats(text)
        writer.write(tokens.astype([("token", dtype), *tokens.dtype.descr[1:]]).tobytes())
    else:
        proceed()


@splice("data.main")
def _():
    tyro.extras.subcommand_cli_from_dict({"prepare": prepare, "show": show}, prog=f"python -m {__package__}.data")
