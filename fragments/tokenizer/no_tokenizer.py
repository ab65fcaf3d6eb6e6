"""Weights without a tokenizer, served to clients that send token ids."""

import sys
from collections.abc import Iterable

from etils import epath

from generator.language.roles import AnyTokenizer, ByteTokenizer, InputError, load_tokenizer


class NoTokenizer(ByteTokenizer):
    """Refuses to encode text, and decodes tokens to nothing."""

    digest = "none"
    bos, eos = None, None
    vocab_size = 0
    prefix, special = (), {}

    def encode(self, text: str) -> list[int]:
        raise InputError("there is no tokenizer: give token ids, or start with --tokenizer")

    def decode(self, ids: Iterable[int]) -> str:
        return ""


def tokenizer_to_serve(name: str, kept: str) -> AnyTokenizer:
    """Returns the given tokenizer, else the one kept with a model, else NoTokenizer."""
    if name or kept == "bytes" or epath.Path(kept).exists():
        return load_tokenizer(name or kept)
    print(f"warning: {kept} is not there: send token ids, or give --tokenizer", file=sys.stderr)
    return NoTokenizer()
