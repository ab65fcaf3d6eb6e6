"""Tokenizers: bytes, or a tokenizer.json of Hugging Face."""

import hashlib
import json
from collections.abc import Iterable

import numpy as np
from etils import epath
from tokenizers import Tokenizer

from generator.language.roles import InputError


class Config:
    tokenizer: str = "bytes"  # path of a tokenizer.json, or bytes


class ByteTokenizer:
    """UTF-8 bytes as tokens 0 to 255; needs no file."""

    digest, bos, eos, vocab_size = "bytes", 256, 257, 258

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Iterable[int]) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="replace")


class FileTokenizer:
    """A Hugging Face tokenizer.json; bos and eos are Llama 2's, or as a tokenizer_config.json beside it says."""

    def __init__(self, path: epath.Path):
        beside = path.parent / "tokenizer_config.json"
        try:
            text = path.read_text()
            self.tokenizer, self.digest = Tokenizer.from_str(text), hashlib.sha256(text.encode()).hexdigest()
            settings = json.loads(beside.read_text()) if beside.exists() else {}
            names = [settings.get("bos_token", "<s>"), settings.get("eos_token", "</s>")]
            names = [name["content"] if isinstance(name, dict) else name for name in names]
            if not self.encode("text"):
                raise ValueError("it makes no tokens from a text")
        except BaseException as error:  # a bad regular expression is a panic of Rust, which is no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            problem = f"tokenizer {path} with its {beside.name}: {error!r}"
            raise InputError(f"{problem}: give the path of a tokenizer.json, or bytes") from None
        self.tokenizer.encode_special_tokens = True  # "</s>" in a document is text and does not end it
        names[0] = names[1] if names[0] is None else names[0]  # what ends a document begins one too, as in GPT-2
        vocabulary = self.tokenizer.get_vocab()
        if not all(isinstance(name, str) and name in vocabulary for name in names):
            raise InputError(f"tokenizer {path}: lacks one of {names}: set bos_token and eos_token in {beside}")
        self.bos, self.eos = (vocabulary[name] for name in names)
        self.vocab_size = max(vocabulary.values()) + 1

    def encode(self, text: str) -> list[int]:
        # a batch of one, as `encode` holds the GIL: threads would wait for each other, and the loop for them
        return self.tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids

    def decode(self, ids: Iterable[int]) -> str:
        return self.tokenizer.decode(list(ids))


def load_tokenizer(name: str) -> ByteTokenizer | FileTokenizer:
    """The tokenizer "bytes", or that of the tokenizer.json at a path. Decoding leaves special tokens out."""
    return ByteTokenizer() if name == "bytes" else FileTokenizer(epath.Path(name))


def encode_document(tokenizer: ByteTokenizer | FileTokenizer, text: str) -> np.ndarray:
    """Its tokens between bos and eos: int32 [n]."""
    return np.array([tokenizer.bos, *tokenizer.encode(text), tokenizer.eos], np.int32)
