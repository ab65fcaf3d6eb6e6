"""The bytes of single tokens, of which streamed text, log-probabilities and lengths in bytes are made."""

import functools
import json
import re

from generator.language.roles import AnyTokenizer, ByteTokenizer, FileTokenizer


@functools.cache
def byte_characters() -> dict[str, int]:
    """Maps the characters of a byte-level vocabulary to their bytes (GPT-2, Radford et al. 2019)."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = sorted(set(range(256)) - set(visible))
    return {chr(byte): byte for byte in visible} | {chr(256 + i): byte for i, byte in enumerate(others)}


@functools.cache
def decoder_steps(tokenizer: FileTokenizer) -> set[str]:
    """Returns the kinds of steps in which a tokenizer decodes, such as ByteLevel or ByteFallback."""
    decoder = json.loads(tokenizer.tokenizer.to_str())["decoder"] or {"type": ""}
    return {step["type"] for step in (decoder, *decoder.get("decoders", ()))}


def is_byte_level(tokenizer: AnyTokenizer) -> bool:
    """Returns whether every token stands for bytes."""
    return isinstance(tokenizer, ByteTokenizer) or "ByteLevel" in decoder_steps(tokenizer)


def has_text(tokenizer: AnyTokenizer, token: int) -> bool:
    """Returns False for special tokens, which decoding leaves out, and for unknown ids."""
    if isinstance(tokenizer, ByteTokenizer):
        return token < min(256, tokenizer.vocab_size)
    return token not in tokenizer.special and tokenizer.tokenizer.id_to_token(token) is not None


def token_byte(tokenizer: AnyTokenizer, token: int) -> bytes | None:
    """Returns the bytes of a byte-level token or of `<0xNN>`; None for one that is text by itself."""
    if isinstance(tokenizer, ByteTokenizer):
        return bytes([token]) if has_text(tokenizer, token) else None
    name = tokenizer.tokenizer.id_to_token(token) or ""
    if is_byte_level(tokenizer):
        table = byte_characters()
        return bytes(table[x] for x in name) if all(x in table for x in name) else name.encode()
    # the decoder reads the digits with Rust's from_str_radix, which takes a sign
    is_byte = "ByteFallback" in decoder_steps(tokenizer) and re.fullmatch("<0x[0-9A-Fa-f+][0-9A-Fa-f]>", name)
    return bytes([int(name[3:5], 16)]) if is_byte else None


@functools.cache
def text_token(tokenizer: FileTokenizer) -> int:
    """Returns a token of a text that is not a byte."""
    return next(i for i in tokenizer.encode("text") if token_byte(tokenizer, i) is None)


def token_bytes(tokenizer: AnyTokenizer, token: int) -> bytes:
    """Returns the bytes that a token adds to a text: b" is" for Llama 2's "▁is"; a special token's name."""
    if not has_text(tokenizer, token):
        return tokenizer.special.get(token, "").encode()
    if (byte := token_byte(tokenizer, token)) is not None:
        return byte
    first = text_token(tokenizer)
    return tokenizer.decode([first, token])[len(tokenizer.decode([first])) :].encode()
