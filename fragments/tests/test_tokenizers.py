"""Tokens against transformers, for the kinds of tokenizers that checkpoints come with; files that are none."""

import dataclasses
import json
import threading
import time

import pytest
import tokenizers
from etils import epath

from generator.language import point
from generator.language.roles import (
    CHECKPOINTS,
    PRESETS,
    TEXTS,
    FileTokenizer,
    InputError,
    fallback,
    load_tokenizer,
    plain_bytes,
    read_sequences,
    save_as_transformers_does,
    write_jsonl,
)

PROMPTS = ["the cat", "  two  spaces\n\n", "日本 😀", "a </s> and <|im_start|> and <|e|><EOS> in it", "<s>", "x"]


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_tokens_are_those_of_transformers(kind, tmp_path):
    """Compares prompts and documents."""
    theirs = save_as_transformers_does(kind, tmp_path)
    ours = FileTokenizer(epath.Path(tmp_path / "tokenizer.json"))
    for text in PROMPTS:
        assert ours.encode_prompt(text) == theirs(text, truncation=False, padding=False).input_ids
        document = theirs(text, split_special_tokens=True, truncation=False, padding=False).input_ids
        document = [*document[: len(document) - len(ours.suffix)], theirs.eos_token_id]
        assert [*ours.prefix, *ours.encode(text), ours.eos] == document


@pytest.mark.parametrize("asked", [False, True])
def test_special_tokens_in_documents_are_text_unless_asked_for(asked, tmp_path, capsys):
    fallback(tmp_path)
    path = str(tmp_path / "tokenizer.json")
    texts = ["a</s>b", "true", "</s>"]
    tokenizer = load_tokenizer(path, asked)
    assert [2 in tokenizer.encode(text) for text in texts] == [asked, False, asked]
    assert all((2 in tokenizer.encode_prompt(text)) == ("</s>" in text) for text in texts)
    data = write_jsonl(tmp_path / "data", [*texts, *["a"] * 100, "</s>"])
    settings = dict(data=data, tokenizer=path, special_tokens=asked, vocab_size=tokenizer.vocab_size)
    read_sequences(dataclasses.replace(PRESETS["tiny"], **settings), "train")
    point("test_tokenizers.read", capsys, is_silent=asked)


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


def test_bytes_round_trip():
    tokenizer = load_tokenizer("bytes")
    text = "Ünïcode \0 \n 漢字"
    ids = tokenizer.encode(text)
    assert max(ids) < 256 and tokenizer.decode([tokenizer.bos, *ids, tokenizer.eos]) == text
    assert sorted([tokenizer.bos, tokenizer.eos]) == [256, 257] and tokenizer.vocab_size == 258


@pytest.fixture
def tokenizer_json(tmp_path):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    # as in Llama's file: encoding adds bos by itself
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def test_tokenizer_json_round_trip(tmp_path, tokenizer_json):
    tokenizer = load_tokenizer(str(tokenizer_json))
    assert (tokenizer.prefix, tokenizer.eos, tokenizer.vocab_size) == ([0], 1, 300)
    for text in [*TEXTS, *PROMPTS, ""]:
        ids = tokenizer.encode(text)
        assert not {0, 1} & set(ids) and tokenizer.decode([0, *ids, 1]) == text
    settings = dict(data=write_jsonl(tmp_path / "data"), tokenizer=str(tokenizer_json), vocab_size=300)
    row = next(read_sequences(dataclasses.replace(PRESETS["tiny"], **settings), "eval"))
    assert tokenizer.decode(row["tokens"][row["segment_ids"] == 1]) in TEXTS


def test_other_threads_run_while_a_text_is_encoded(tokenizer_json):
    tokenizer = load_tokenizer(str(tokenizer_json))
    ticks = []
    begun, ended = threading.Event(), threading.Event()

    def tick():
        begun.set()
        while not ended.wait(0.001):
            ticks.append(time.perf_counter())

    thread = threading.Thread(target=tick)
    thread.start()
    begun.wait()
    start = time.perf_counter()
    tokenizer.encode("a few words of text " * 20_000)
    stop = time.perf_counter()
    ended.set()
    thread.join()
    assert len([at for at in ticks if start < at < stop]) > 5


@pytest.mark.parametrize("name", ["bos_token", "eos_token"])
@pytest.mark.parametrize("value", [[], 3, {"content": 3}, "nothing", {}, True, ["<s>"]])
def test_a_special_token_that_is_none_is_named(tokenizer_json, name, value):
    tokenizer_json.with_name("tokenizer_config.json").write_text(json.dumps({name: value}))
    with pytest.raises(InputError, match=r"tokenizer.*tokenizer_config\.json"):
        load_tokenizer(str(tokenizer_json))


def test_eos_comes_from_config_json_where_no_tokenizer_file_names_it(tokenizer_json):
    tokenizer_json.with_name("tokenizer_config.json").write_text('{"eos_token": null}')
    with pytest.raises(InputError, match="nothing names eos: set eos_token in its tokenizer_config"):
        load_tokenizer(str(tokenizer_json))
    tokenizer_json.with_name("config.json").write_text('{"eos_token_id": [7, 1]}')
    assert load_tokenizer(str(tokenizer_json)).eos == 7


def test_what_does_not_fit_is_named(tmp_path, tokenizer_json):
    def refused(**fields) -> str:
        config = dataclasses.replace(PRESETS["tiny"], **dict(data=data, vocab_size=300, sequence_length=64) | fields)
        with pytest.raises(InputError) as caught:
            read_sequences(config, "train")
        assert "\n" not in str(caught.value)
        return str(caught.value)

    data = write_jsonl(tmp_path / "data")
    for name in "llama", "", data:
        assert "give the path of a tokenizer.json, or bytes" in refused(tokenizer=name)
    assert "its 300 tokens exceed a vocab_size of 299: raise that" in refused(
        tokenizer=str(tokenizer_json), vocab_size=299
    )
    plain = json.loads(tokenizer_json.read_text()) | {"post_processor": None}  # without bos
    tokenizer_json.write_text(json.dumps(plain))
    data = write_jsonl(tmp_path / "data", [""] * 3)
    assert "of 3 documents 1 are held out, and none with text is left" in refused(tokenizer=str(tokenizer_json))
