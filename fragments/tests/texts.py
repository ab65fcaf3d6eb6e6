"""The documents of tests, and a file of them."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from generator.language.roles import Config, Sequences, join_pieces, open_source, repeat

TEXTS = [f"document {i}: " + "ünï" * (i % 7) * (i % 11) for i in range(120)]  # 13 to 308 bytes


def write_jsonl(folder: Path, texts: list[str] = TEXTS) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / "texts.jsonl"
    path.write_text("\n\n".join(json.dumps({"text": text, "n": i}) for i, text in enumerate(texts)) + "\n\n")
    return str(path)


def read_sequences(config: Config, split: str) -> Iterator[dict[str, np.ndarray]]:
    source = open_source(config, split)
    order = repeat(source, config.seed) if split == "train" else source.map(lambda pieces: (False, pieces))
    return (join_pieces(pieces, config.sequence_length) for pieces in Sequences(order, config.sequence_length))
