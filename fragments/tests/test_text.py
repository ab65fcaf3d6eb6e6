"""Streamed text against decoding all tokens at once, and chats against transformers."""

import random

import pytest
from etils import epath

from generator.language.roles import (
    CHECKPOINTS,
    KINDS,
    Choice,
    Detokenizer,
    FileTokenizer,
    Request,
    SamplingParams,
    Stops,
    StopString,
    TokenScore,
    completion_logprobs,
    fallback,
    load_chat_template,
    save_as_transformers_does,
    token_bytes,
)

PIECES = ["😀", "你好", "é", "नमस्ते", "👩\u200d🚀", "a", " ", "ok", "\n"]


@pytest.mark.parametrize("kind", KINDS)
def test_text_comes_as_it_is_decoded_at_once(kind, tmp_path):
    """Tries tokens of scripts or at random, after a prompt or not, up to a stop string or to the end."""
    tokenizer = KINDS[kind](tmp_path)
    draw = random.Random(0)
    for case in range(500):
        tokens = [draw.randrange(tokenizer.vocab_size + 2) for _ in range(draw.randrange(30))]
        if case % 3 == 0:
            tokens = [token for text in draw.choices(PIECES, k=8) for token in tokenizer.encode(text)]
        text = Detokenizer(tokenizer, [])
        pieces = [*map(text.add, tokens), text.end()]
        whole = tokenizer.decode(tokens)
        assert "".join(pieces) == whole
        cut = draw.randrange(len(tokens) + 1)
        before = tokenizer.decode(tokens[:cut])
        if whole.startswith(before) and "\ufffd" not in whole:
            text = Detokenizer(tokenizer, tokens[:cut])
            assert before + "".join([*map(text.add, tokens[cut:]), text.end()]) == whole
        if len(whole) > 5:
            stop = whole[3 : 3 + draw.randrange(1, 4)]
            stops = Stops([StopString("never there"), StopString(stop)])
            assert "".join(stops.add(piece) for piece in pieces if not stops.matched) == whole[: whole.find(stop)]
            assert stops.matched


@pytest.mark.parametrize("kind", KINDS)
def test_an_echo_and_its_answer_make_up_the_text(kind, tmp_path):
    """Wherever the prompt ends, within a character too; an answer without tokens has no text."""
    tokenizer = KINDS[kind](tmp_path)
    draw = random.Random(0)

    def read(prompt: list[int], tokens: list[int], is_scored: bool, echo: bool) -> str:
        sampling = SamplingParams(logit_bias=dict.fromkeys(tokens, 1e9) if is_scored else {})
        request = Request(prompt, sampling, tokens, [-1.0] * len(tokens), [{} for _ in tokens])
        choice = Choice(request, tokenizer, [])
        text = choice.echo(is_scored).text if echo else ""
        return text + choice.advance(0 if is_scored else len(tokens), "length").text

    for _ in range(20):
        tokens = [token for text in draw.choices(PIECES, k=4) for token in tokenizer.encode(text)]
        whole = tokenizer.decode(tokens)
        assert [read(tokens[:-1], tokens[-1:], True, echo) for echo in (True, False)] == [whole, ""]
        for cut in range(1, len(tokens)):
            assert read(tokens[:cut], tokens[cut:], False, True) == whole


def test_texts_of_tokens_make_up_the_text_and_are_told_apart(tmp_path):
    tokenizer = fallback(tmp_path)
    for text in "a true a", "true\n日本 ok":
        tokens = tokenizer.encode(text)
        assert b"".join(token_bytes(tokenizer, token) for token in tokens).decode() == " " + text
    ids = [tokenizer.tokenizer.token_to_id(name) for name in ("▁true", "true", "<0x61>", "a", "<0xE6>")]

    top = {ids[0]: -1.0, ids[1]: -2.0, ids[2]: -4.0, ids[3]: -3.0, ids[4]: -5.0}
    found = completion_logprobs([TokenScore(ids[0], 0, -1.0, top, b" true")], tokenizer)
    assert found["tokens"] == [" true"]
    assert found["top_logprobs"] == [{" true": -1, "true": -2, "a": -3, f"token_id:{ids[2]}": -4, "bytes:\\xe6": -5}]


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_chats_are_those_of_transformers(kind, tmp_path):
    """Special tokens in a message's content stay text here."""
    theirs = save_as_transformers_does(kind, tmp_path)
    path = tmp_path / "tokenizer.json"
    template = load_chat_template(FileTokenizer(epath.Path(path)), str(path))
    for text in "the cat", "  two  spaces\n\n", "日本 😀", "x":
        messages = [{"role": "user", "content": text}, {"role": "assistant", "content": "a"}]
        found = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        assert template.encode(messages) == found


STOPS = ["", "a", "ab", "aab", "abab", "bbba", "aaaaaaab"]


@pytest.mark.parametrize("seed", range(20))
def test_a_text_is_cut_before_its_first_stop_string(seed):
    draw = random.Random(seed)
    text = "".join(draw.choices("ab", k=60))
    stops = draw.sample(STOPS[1:], 2) if seed else []
    at = min((place for stop in stops if (place := text.find(stop)) >= 0), default=len(text))
    cut = Stops([StopString(stop) for stop in stops])
    shown = ""
    for place in range(0, 60, 3):
        if not cut.matched:
            shown += cut.add(text[place : place + 3])
        assert text.startswith(shown) and len(shown) + 10 > min(at, place)
    # if several stop strings end in one piece, the first to start counts
    assert (shown + cut.buffered).startswith(text[:at]) if not cut.matched else len(shown) <= at + 3
    assert cut.matched == (at < 60)
