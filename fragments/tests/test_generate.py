"""Generation from the command line: text as it comes."""

import pytest

from generator.language.roles import ByteTokenizer, Text


def pieces_of(prompt, tokens):
    text = Text(ByteTokenizer(), prompt)
    return [*map(text.add, tokens), text.end()]


@pytest.mark.parametrize("text", ["plain", "größer", "日本語", "👩‍🚀 up", ""])
def test_streamed_text_is_whole_characters(text):
    tokenizer = ByteTokenizer()
    pieces = pieces_of(tokenizer.encode("é:"), tokenizer.encode(text))
    assert "".join(pieces) == text
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(pieces)
    assert len([piece for piece in pieces if piece]) == len(text)


def test_streamed_text_keeps_bytes_that_are_no_text():
    tokens = [0xE2, 0x82, ord("a"), 0xFF]
    assert "".join(pieces_of([], tokens)) == bytes(tokens).decode(errors="replace")
