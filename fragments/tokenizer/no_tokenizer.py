"""Weights without a tokenizer, which are served to clients that send token ids."""

import sys
from collections.abc import Iterable

from etils import epath

from generator.language.roles import ByteTokenizer, FileTokenizer, InputError, load_tokenizer


class NoTokenizer(ByteTokenizer):
    """Makes no text of tokens, and no tokens of text."""

    digest, bos, eos, vocab_size, prefix = "none", None, None, 0, ()

    def __init__(self):
        self.special = {}

    def encode(self, text: str) -> list[int]:
        raise InputError("there is no tokenizer: give token ids, or start with --tokenizer")

    encode_prompt = encode

    def decode(self, ids: Iterable[int]) -> str:
        return ""

    def has_text(self, token: int) -> bool:
        return False

    def token_byte(self, token: int) -> None:
        return None

    def token_bytes(self, token: int) -> bytes:
        return b""


def tokenizer_to_serve(given: str, kept: str) -> ByteTokenizer | FileTokenizer:
    """The tokenizer that was given, or else the one that is kept with a model, where there is one."""
    if given or kept == "bytes" or epath.Path(kept).exists():
        return load_tokenizer(given or kept)
    print(f"warning: {kept} is not there: send token ids, or give --tokenizer", file=sys.stderr)
    return NoTokenizer()
