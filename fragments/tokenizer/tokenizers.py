"""Tokenizers: bytes, or a Hugging Face tokenizer.json."""

import functools
import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from etils import epath
from tokenizers import Tokenizer

from generator.language.roles import InputError


class Config:
    tokenizer: str = "bytes"  # path of a tokenizer.json, or bytes
    special_tokens: bool = False  # whether <|im_end|> and the like in documents are tokens, not text


class ByteTokenizer:
    """UTF-8 bytes as tokens 0 to 255; needs no file."""

    digest, bos, eos, vocab_size, byte_level = "bytes", 256, 257, 258, True
    prefix, parses_special = (bos,), False

    def __init__(self):
        self.special = {256: "<s>", 257: "</s>"}

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_prompt(self, text: str) -> list[int]:
        return [*self.prefix, *self.encode(text)]

    def decode(self, ids: Iterable[int]) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="replace")

    def has_text(self, token: int) -> bool:
        return token < 256

    def token_byte(self, token: int) -> bytes | None:
        return bytes([token]) if token < 256 else None

    def token_bytes(self, token: int) -> bytes:
        return self.token_byte(token) or self.special.get(token, "").encode()


@functools.cache
def byte_characters() -> dict[str, int]:
    """Maps the characters of a byte-level vocabulary to their bytes (GPT-2, Radford et al. 2019)."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = sorted(set(range(256)) - set(visible))
    return {chr(byte): byte for byte in visible} | {chr(256 + i): byte for i, byte in enumerate(others)}


def read_settings(folder: epath.Path) -> dict[str, Any]:
    """Reads tokenizer_config.json, with defaults from special_tokens_map.json, and eos from config.json."""
    files = {name: folder / f"{name}.json" for name in ("config", "special_tokens_map", "tokenizer_config")}
    model, tokens, settings = (json.loads(x.read_text()) if x.exists() else {} for x in files.values())
    eos = np.ravel(model.get("eos_token_id") or [])  # one token or several
    return {"eos_token_id": int(eos[0]) if len(eos) else None, **tokens, **settings}


class FileTokenizer:
    """A Hugging Face tokenizer.json and the tokenizer_config.json beside it, read as transformers reads them.

    Attributes:
        prefix, suffix: the tokens that it puts before a text, such as bos, and after it.
        eos: the token that ends a document.
        special: the texts of special tokens, by token.
        parses_special: whether `encode` makes tokens of them; otherwise "</s>" in a text stays text.
        names: bos_token and eos_token as chat templates write them.
    """

    def __init__(self, path: epath.Path, parses_special: bool = False):
        self.parses_special = parses_special
        try:
            text = path.read_text()
            self.tokenizer, self.digest = Tokenizer.from_str(text), hashlib.sha256(text.encode()).hexdigest()
            # undoes what an earlier call of transformers saved in the file: texts are never truncated or padded
            self.tokenizer.no_truncation()
            self.tokenizer.no_padding()
            self.tokenizer.encode_special_tokens = not parses_special
            if not self.encode("text"):
                raise ValueError("it makes no tokens from a text")
            decoder = json.loads(text).get("decoder") or {}
            kinds = {part["type"] for part in (decoder, *decoder.get("decoders", ()))} if decoder else set()
            self.byte_level, self.byte_fallback = "ByteLevel" in kinds, "ByteFallback" in kinds
            self.read_special_tokens(read_settings(path.parent), path)
        except InputError:
            raise
        except BaseException as error:  # a bad regular expression panics in Rust, which is no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            problem = f"tokenizer {path} with its tokenizer_config.json: {error!r}"
            raise InputError(f"{problem}: give the path of a tokenizer.json, or bytes") from None

    def read_special_tokens(self, settings: dict[str, Any], path: epath.Path) -> None:
        vocabulary = self.tokenizer.get_vocab()
        self.vocab_size = max(vocabulary.values()) + 1
        added = self.tokenizer.get_added_tokens_decoder().items()
        self.special = {i: token.content for i, token in added if token.special}
        defaults = {"bos_token": "<s>", "eos_token": "</s>"}  # of Llama's class, if no file names one
        self.names = {}
        for name, default in defaults.items():
            token = settings.get(name, default if default in vocabulary else None)
            token = token["content"] if isinstance(token, dict) else token
            if token is not None and token not in vocabulary:
                raise InputError(f"tokenizer {path}: {name} {token!r} is no token of it: fix its tokenizer_config.json")
            self.names |= {name: token} if token is not None else {}
        eos = self.names.get("eos_token")
        self.eos = settings["eos_token_id"] if eos is None else vocabulary[eos]
        if self.eos is None:
            raise InputError(f"tokenizer {path}: nothing names eos: set eos_token in its tokenizer_config.json")
        # tokenizer.json alone decides the prefix: transformers 5 does not read add_bos_token beside it
        plain, whole = (self.tokenizer.encode("text", add_special_tokens=flag).ids for flag in (False, True))
        at = next(i for i in range(len(whole)) if whole[i : i + len(plain)] == plain)
        self.prefix, self.suffix = whole[:at], whole[at + len(plain) :]

    @functools.cached_property
    def parsing(self) -> Tokenizer:
        """Returns a tokenizer that parses special tokens in a text."""
        return self.tokenizer if self.parses_special else Tokenizer.from_str(self.tokenizer.to_str())

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a text, without prefix and suffix."""
        # a batch of one, as `encode` holds the GIL and so blocks all other threads
        return self.tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids

    def encode_prompt(self, text: str) -> list[int]:
        """Returns the tokens of a prompt as transformers and vLLM do: special tokens in it count as such."""
        tokens = self.parsing.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return [*self.prefix, *tokens, *self.suffix]

    def decode(self, ids: Iterable[int]) -> str:
        return self.tokenizer.decode(list(ids))

    def has_text(self, token: int) -> bool:
        """Returns False for special tokens, which decoding leaves out, and for unknown ids."""
        return token not in self.special and self.tokenizer.id_to_token(token) is not None

    def token_byte(self, token: int) -> bytes | None:
        """Returns the bytes of a byte-level token or of `<0xNN>`; None for one that is text by itself."""
        name = self.tokenizer.id_to_token(token) or ""
        if self.byte_level:
            table = byte_characters()
            return bytes(table[x] for x in name) if all(x in table for x in name) else name.encode()
        is_byte = self.byte_fallback and re.fullmatch("<0x[0-9A-Fa-f+][0-9A-Fa-f]>", name)
        return bytes([int(name[3:5], 16)]) if is_byte else None

    @functools.cached_property
    def anchor(self) -> int:
        """Returns a text token that is not a byte."""
        return next(i for i in self.encode("text") if self.token_byte(i) is None)

    def token_bytes(self, token: int) -> bytes:
        """Returns the bytes that a token adds to a text: b" is" for Llama 2's "▁is"; a special token's name."""
        if not self.has_text(token):
            return self.special.get(token, "").encode()
        if (byte := self.token_byte(token)) is not None:
            return byte
        return self.decode([self.anchor, token])[len(self.decode([self.anchor])) :].encode()


def load_tokenizer(name: str, parses_special: bool = False) -> ByteTokenizer | FileTokenizer:
    """Loads the tokenizer "bytes", or the tokenizer.json at a path. Decoding leaves special tokens out."""
    return ByteTokenizer() if name == "bytes" else FileTokenizer(epath.Path(name), parses_special)


def encode_document(tokenizer: ByteTokenizer | FileTokenizer, text: str) -> np.ndarray:
    """Returns the tokens of a document, int32 [n], with the tokenizer's prefix and eos."""
    return np.array([*tokenizer.prefix, *tokenizer.encode(text), tokenizer.eos], np.int32)
