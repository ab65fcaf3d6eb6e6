"""Tokens against transformers, for the kinds of tokenizers that checkpoints come with."""

import json

import pytest
from etils import epath

from generator.language.roles import (
    CHECKPOINTS,
    FileTokenizer,
    InputError,
    count_special,
    fallback,
    load_tokenizer,
    plain_bytes,
    save_as_transformers_does,
    warn_of_special_tokens,
)

TEXTS = ["the cat", "  two  spaces\n\n", "日本 😀", "a </s> and <|im_start|> and <|e|><EOS> in it", "<s>", "x"]


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_tokens_are_those_of_transformers(kind, tmp_path):
    """Compares prompts and documents."""
    theirs = save_as_transformers_does(kind, tmp_path)
    ours = FileTokenizer(epath.Path(tmp_path / "tokenizer.json"))
    for text in TEXTS:
        assert ours.encode_prompt(text) == theirs(text, truncation=False, padding=False).input_ids
        document = theirs(text, split_special_tokens=True, truncation=False, padding=False).input_ids
        document = [*document[: len(document) - len(ours.suffix)], theirs.eos_token_id]
        assert [*ours.prefix, *ours.encode(text), ours.eos] == document


@pytest.mark.parametrize("asked", [False, True])
def test_special_tokens_in_documents_are_text_unless_asked_for(asked, tmp_path, capsys):
    fallback(tmp_path)
    tokenizer = load_tokenizer(str(tmp_path / "tokenizer.json"), asked)
    texts = ["a</s>b", "true", "</s>"]
    assert [2 in tokenizer.encode(text) for text in texts] == [asked, False, asked]
    assert all((2 in tokenizer.encode_prompt(text)) == ("</s>" in text) for text in texts)
    warn_of_special_tokens("DATA", "the first 100", count_special(tokenizer, texts))
    said = "special tokens in documents: of the first 100 documents: </s> in 2; there they are text"
    assert (said in capsys.readouterr().err) != asked


@pytest.mark.parametrize(
    "text", ['{"pre_tokenizer": {"type": "Split"', "{}", "[]", '"x"', "", "\x00", '{"model": {"type": "BPE"}}']
)
def test_a_file_that_is_no_tokenizer_is_named(text, tmp_path):
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(InputError, match=r"tokenizer\.json .*give the path of a tokenizer\.json, or bytes"):
        FileTokenizer(epath.Path(tmp_path / "tokenizer.json"))


@pytest.mark.parametrize("pattern", ["(", "[", "(?<n>", "a{99999999}"])
def test_a_bad_regular_expression_is_named(pattern, tmp_path):
    plain_bytes(tmp_path)
    path = tmp_path / "tokenizer.json"
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pre_tokenizer": split}))
    with pytest.raises(InputError, match=r"tokenizer\.json .*give the path of a tokenizer\.json, or bytes"):
        FileTokenizer(epath.Path(path))
