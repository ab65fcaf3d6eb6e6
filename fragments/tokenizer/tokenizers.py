"""Tokenizers: bytes, or a Hugging Face tokenizer.json."""

import functools
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from etils import epath
from tokenizers import Tokenizer

from generator.language.roles import InputError


class DataConfig:
    tokenizer: str = "bytes"  # path of a tokenizer.json, or bytes
    special_tokens: bool = False  # whether <|im_end|> and the like in documents are tokens, not text


class ByteTokenizer:
    """UTF-8 bytes as tokens 0 to 255; needs no file."""

    digest = "bytes"
    bos, eos, vocab_size = 256, 257, 258
    prefix, special = [bos], {bos: "<s>", eos: "</s>"}
    parses_special = False

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_prompt(self, text: str) -> list[int]:
        return [*self.prefix, *self.encode(text)]

    def decode(self, ids: Iterable[int]) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="replace")


class FileTokenizer:
    """A Hugging Face tokenizer.json and the files beside it, read as transformers reads them.

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
            if odd := [x for x in path.parent.glob("*.j*") if x.is_dir() or Path(x).is_fifo()]:  # a pipe never ends
                raise ValueError(f"{odd[0]} is not a file")
            text = path.read_text()
            self.tokenizer = Tokenizer.from_str(text)
            self.digest = hashlib.sha256(text.encode()).hexdigest()
            # undoes what an earlier call of transformers saved in the file: texts are never truncated or padded
            self.tokenizer.no_truncation()
            self.tokenizer.no_padding()
            self.tokenizer.encode_special_tokens = not parses_special
            # tokenizer.json alone decides the prefix: transformers 5 does not read add_bos_token beside it
            plain, with_affixes = (self.tokenizer.encode("text", add_special_tokens=flag).ids for flag in (False, True))
            if not plain:
                raise ValueError("it makes no tokens from a text")
            at = next(i for i in range(len(with_affixes)) if with_affixes[i : i + len(plain)] == plain)
            self.prefix, self.suffix = with_affixes[:at], with_affixes[at + len(plain) :]
            self.read_special_tokens(path)
        except (InputError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a bad regular expression panics in Rust, which is no Exception
            problem = f"tokenizer {path} with its tokenizer_config.json: {error!r}"
            raise InputError(f"{problem}: give the path of a tokenizer.json, or bytes") from None

    def read_special_tokens(self, path: epath.Path) -> None:
        """Reads tokenizer_config.json, else special_tokens_map.json, and eos from config.json if neither names it."""
        files = (path.with_name(f"{x}.json") for x in ("config", "special_tokens_map", "tokenizer_config"))
        model, tokens, settings = (json.loads(x.read_text()) if x.exists() else {} for x in files)
        vocabulary = self.tokenizer.get_vocab()
        self.vocab_size = max(vocabulary.values()) + 1
        added = self.tokenizer.get_added_tokens_decoder().items()
        self.special = {i: token.content for i, token in added if token.special}
        self.names = {}
        for name, default in ("bos_token", "<s>"), ("eos_token", "</s>"):  # of Llama's class, if no file names one
            token = (tokens | settings).get(name, default if default in vocabulary else None)
            token = token["content"] if isinstance(token, dict) else token
            if token is not None and token not in vocabulary:
                raise InputError(f"tokenizer {path}: {name} {token!r} is no token of it: fix its tokenizer_config.json")
            self.names |= {name: token} if token is not None else {}
        ends = (int(i) for i in np.ravel(model.get("eos_token_id", [])) if i is not None)  # one token or several
        self.eos = vocabulary[self.names["eos_token"]] if "eos_token" in self.names else next(ends, None)
        if self.eos is None:
            raise InputError(f"tokenizer {path}: nothing names eos: set eos_token in its tokenizer_config.json")

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


AnyTokenizer = ByteTokenizer | FileTokenizer


def load_tokenizer(name: str, parses_special: bool = False) -> AnyTokenizer:
    """Loads the tokenizer "bytes", or the tokenizer.json at a path. Decoding leaves special tokens out."""
    return ByteTokenizer() if name == "bytes" else FileTokenizer(epath.Path(name), parses_special)


def encode_document(tokenizer: AnyTokenizer, text: str) -> np.ndarray:
    """Returns the tokens of a document, int32 [n], with the tokenizer's prefix and eos."""
    return np.array([*tokenizer.prefix, *tokenizer.encode(text), tokenizer.eos], np.int32)
