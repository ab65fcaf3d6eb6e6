"""Command line: a picture of one batch."""

import dataclasses
from pathlib import Path

import tyro

from generator.language import requires
from generator.language.roles import PRESETS, Config, batch_page, check_config, load_tokenizer, make_datasets

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
    rows = [next(row) for row in make_datasets(config, "train", range(config.batch_size), config.seed)]
    Path(out).expanduser().write_text(batch_page(rows, tokenizer, config.data), encoding="utf-8")
    print(f"{len(rows)} sequences of {config.data}: {out}")
