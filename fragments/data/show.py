"""Command line: a picture of one batch."""

import dataclasses
import itertools
from pathlib import Path

import tyro

from generator.language import point, requires
from generator.language.roles import (
    PRESETS,
    Config,
    Sequences,
    batch_page,
    check_config,
    join_pieces,
    load_tokenizer,
    open_source,
    repeat,
)

requires("batch_page", "data/chat_data")


def show(config: tyro.conf.OmitArgPrefixes[Config] = PRESETS["tiny"], out: str = "batch.html") -> None:
    """Writes a page with the first batch of training, its tokens coloured by weight.

    Args:
        config: Settings as those of train.
        out: File for the page.
    """
    tokenizer = load_tokenizer(config.tokenizer, config.special_tokens)
    config = dataclasses.replace(config, vocab_size=max(config.vocab_size, tokenizer.vocab_size))
    check_config(config)
    source = open_source(config, "train")
    with point("show.order", config, source):
        order = repeat(source, config.seed)
    packed = itertools.islice(Sequences(order, config.sequence_length), config.batch_size)
    rows = [join_pieces(pieces, config.sequence_length) for pieces in packed]
    Path(out).expanduser().write_text(batch_page(rows, tokenizer, config.data), encoding="utf-8")
    print(f"{len(rows)} sequences of {config.data}: {out}")
