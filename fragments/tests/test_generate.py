"""Generation from the command line: text as it comes."""

import pytest

from generator.language.roles import ByteTokenizer, stream_text


@pytest.mark.parametrize("text", ["plain", "größer", "日本語", "👩‍🚀 up", ""])
def test_streamed_text_is_whole_characters(text):
    tokenizer = ByteTokenizer()
    pieces = list(stream_text(tokenizer, tokenizer.encode("é:"), tokenizer.encode(text)))
    assert "".join(pieces) == "é:" + text
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(pieces)
    assert len([piece for piece in pieces if piece]) == max(len(text), 1)


def test_streamed_text_keeps_bytes_that_are_no_text():
    tokens = [0xE2, 0x82, ord("a"), 0xFF]
    assert "".join(stream_text(ByteTokenizer(), [], tokens)) == bytes(tokens).decode(errors="replace")
