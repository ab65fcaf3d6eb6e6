"""Generation from the command line: text as it comes."""

import json

import pytest

from generator.language.roles import (
    ByteTokenizer,
    Detokenizer,
    InputError,
    NoTokenizer,
    default_sampling,
    load_ends,
    load_generation,
    tokenizer_to_serve,
)


def pieces_of(prompt, tokens):
    text = Detokenizer(ByteTokenizer(), prompt)
    return [*map(text.add, tokens), text.end()]


@pytest.mark.parametrize("text", ["plain", "größer", "日本語", "👩\u200d🚀 up", ""])
def test_streamed_text_is_whole_characters(text):
    tokenizer = ByteTokenizer()
    pieces = pieces_of(tokenizer.encode("é:"), tokenizer.encode(text))
    assert "".join(pieces) == text
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(pieces)
    assert len([piece for piece in pieces if piece]) == len(text)


def test_streamed_text_keeps_bytes_that_are_no_text():
    tokens = [0xE2, 0x82, ord("a"), 0xFF]
    assert "".join(pieces_of([], tokens)) == bytes(tokens).decode(errors="replace")


GENERATION = [
    {},
    {"eos_token_id": 7},
    {"eos_token_id": [7, 300], "do_sample": True, "temperature": 0.6, "top_p": 0.9},
    {"do_sample": True, "temperature": 0.7, "top_k": 20, "repetition_penalty": 1.1},
    {"do_sample": False, "temperature": 0.6, "repetition_penalty": 1.2},
    {"temperature": 0.3},
    {"eos_token_id": -1},
]


@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
@pytest.mark.parametrize("said", GENERATION)
def test_texts_end_and_are_drawn_as_by_transformers(said, file, tmp_path):
    """Uses config.json if there is no generation_config.json; a run's directory keeps both."""
    transformers = pytest.importorskip("transformers")
    if file == "config.json":
        (tmp_path / file).write_text(json.dumps(said))
        theirs = transformers.GenerationConfig.from_model_config(dict(said))
    else:
        (tmp_path / "config.json").write_text('{"eos_token_id": 9, "temperature": 0.1}')  # no longer counts
        (tmp_path / file).write_text(json.dumps(said))
        theirs = transformers.GenerationConfig.from_pretrained(tmp_path)
    path = str(tmp_path / "tokenizer.json")
    ends = theirs.eos_token_id
    ends = set(ends if isinstance(ends, list) else [] if ends is None else [ends]) - {-1}  # which is no token
    assert (load_ends(NoTokenizer(), path), load_ends(ByteTokenizer(), path)) == (ends, {257, *ends})  # with eos
    draws = default_sampling(load_generation(path), sampled=False)
    assert draws.get("repetition_penalty", 1) == (theirs.repetition_penalty or 1)
    names = ("temperature", "top_p", "top_k") if theirs.do_sample else ()
    assert {name: draws.get(name) for name in names} == {name: getattr(theirs, name) for name in names}
    assert theirs.do_sample or draws["temperature"] == 0
    sampled = default_sampling(load_generation(path), sampled=True)  # as vLLM's server
    assert sampled["temperature"] == (said.get("temperature", 1) if said.get("do_sample", True) else 0)


@pytest.mark.parametrize(
    "said",
    [
        *('{"temperature": "1"}', '{"top_p": 0}', '{"top_k": 1.5}', '{"repetition_penalty": NaN}', "[]", "{"),
        *('{"eos_token_id": "7"}', '{"eos_token_id": [7.5]}', '{"eos_token_id": Infinity}'),
    ],
)
def test_generation_settings_that_cannot_be_used_are_named(said, tmp_path):
    (tmp_path / "generation_config.json").write_text(said)
    with pytest.raises(InputError, match=r"generation_config\.json: "):
        load_generation(str(tmp_path / "tokenizer.json"))


def test_a_model_without_a_tokenizer_takes_token_ids(tmp_path, capsys):
    tokenizer = tokenizer_to_serve("", str(tmp_path / "tokenizer.json"))
    assert "send token ids, or give --tokenizer" in capsys.readouterr().err
    assert Detokenizer(tokenizer, [1, 2]).add(70) == ""
    with pytest.raises(InputError, match="there is no tokenizer: give token ids"):
        tokenizer.encode("text")
    assert isinstance(tokenizer_to_serve("bytes", str(tmp_path / "tokenizer.json")), ByteTokenizer)
    with pytest.raises(InputError, match=r"give the path of a tokenizer\.json"):  # a given one must exist
        tokenizer_to_serve(str(tmp_path / "tokenizer.json"), "bytes")
