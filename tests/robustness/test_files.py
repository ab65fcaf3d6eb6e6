"""Data and tokenizers, damaged in every way: read as they are where they are still whole, or refused by name."""

from __future__ import annotations

import json
import os

import pytest

from robustness.programs import TEXTS, damaged, drawn, jsonl, module, read_data, replace


def write_text(path):
    path.write_text("\n".join(TEXTS * 200))


def write_parquet(path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"text": TEXTS}), path)


def write_array_record(path):
    writer = pytest.importorskip("array_record.python.array_record_module").ArrayRecordWriter(str(path), "group_size:1")
    for text in TEXTS:
        writer.write(text.encode())
    writer.close()


FORMATS = {"txt": write_text, "jsonl": jsonl, "parquet": write_parquet, "array_record": write_array_record}
KINDS = [*damaged(bytes(99), 0), "a folder", "utf-16", "byte order mark", "carriage returns"]
CASES = [(suffix, kind) for suffix in FORMATS for kind in KINDS]
# what still is a file of its format
WHOLE = {
    "txt": {*(kind for kind in KINDS if kind.startswith("cut") or kind.startswith("bit")), "without its last byte"}
    | {"twice", "byte order mark", "carriage returns", "zeros in the middle"},
    "jsonl": {*(kind for kind in KINDS if kind.startswith("bit")), "twice", "byte order mark", "carriage returns"}
    | {"without its last byte"},
    "parquet": {*(kind for kind in KINDS if kind.startswith("bit")), "twice"},
    "array_record": {*(kind for kind in KINDS if kind.startswith("bit")), "twice", "zeros in the middle"},
}


@pytest.mark.parametrize(("suffix", "kind"), drawn(CASES), ids=repr)
def test_a_data_file(suffix, kind, tmp_path):
    path = tmp_path / f"data.{suffix}"
    FORMATS[suffix](path)
    content = path.read_bytes()
    changed = damaged(content, len(suffix)) | {"a folder": None, "byte order mark": b"\xef\xbb\xbf" + content}
    if suffix in ("txt", "jsonl"):
        changed["utf-16"] = content.decode().encode("utf-16")
        changed["carriage returns"] = content.replace(b"\n", b"\r\n")
    if kind not in changed:
        return
    replace(path, changed[kind])
    ended = read_data(str(path))
    assert ended.refused or kind in WHOLE[suffix], ended.out
    if ended.refused:
        assert str(path) in ended.err
    elif suffix == "array_record":  # has checksums
        assert list(module("data").open_documents(str(path))[0]) == TEXTS
    path.rmdir() if path.is_dir() else path.unlink()
    path.write_bytes(content)
    assert read_data(str(path)).code == 0


LINES = {
    "half a pair": (rb'{"text": "a \ud800 b \udc00\ud83d\ude00"}', True),
    "no text": (b'{"text": ""}', True),
    "a long one": (b'{"text": "' + b"x" * 300_000 + b'"}', True),
    "twice the key": (b'{"text": 3, "text": "b"}', True),
    "not a number": (b'{"text": "a", "score": NaN}', True),
    "null": (b'{"text": null}', True),  # left out, and counted
    "a number": (b'{"text": 3}', False),
    "a list": (b'["text"]', False),
    "a string": (b'"text"', False),
    "half": (b'{"text": "a', False),
    "depth": (b'{"text": ' + b"[" * 100_000, False),
    "zero bytes": (b'{"text": "a\0b"}', False),
    "latin-1": ('{"text": "größer"}'.encode("latin-1"), False),
    "spaces": (b"   ", True),  # blank
    "a huge number": (b'{"text": "a", "n": ' + b"9" * 9999 + b"}", False),
}


@pytest.mark.parametrize(("line", "good"), LINES.values(), ids=LINES)
def test_a_line(line, good, tmp_path):
    path = jsonl(tmp_path / "data.jsonl")
    path.write_bytes(path.read_bytes() + line + b"\n")
    ended = read_data(str(path))
    assert ended.refused != good
    assert good or f"{path}:61: " in ended.err


def test_half_a_surrogate_pair_is_replaced_and_the_rest_stays(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES["half a pair"][0] + b"\n")
    assert list(module("data").open_documents(str(path))[0]) == [
        "a \N{REPLACEMENT CHARACTER} b \N{REPLACEMENT CHARACTER}😀"
    ]


def test_what_is_in_a_folder(tmp_path):
    jsonl(tmp_path / "a.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    assert read_data(str(tmp_path)).code == 0
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nothing")
    assert "gone.jsonl" in read_data(str(tmp_path)).err
    (tmp_path / "gone.jsonl").unlink()
    os.mkfifo(tmp_path / "pipe.txt")
    assert "pipe.txt" in read_data(str(tmp_path)).err


@pytest.mark.parametrize("suffix", ["jsonl", "txt"])
def test_a_file_that_is_cut_while_it_is_read(suffix, tmp_path):
    path = tmp_path / f"a.{suffix}"
    FORMATS[suffix](path)
    documents = module("data").open_documents(str(path))[0]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(module("errors").InputError, match=rf"a\.{suffix}: has been cut"):
        list(documents)


def write_tokenizer(path, special=("<s>", "</s>")):
    import tokenizers

    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=258, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.save(str(path))


VALUES = [None, [], {}, "x", 0, -1, True, [None], {"type": "x"}]
MEMBERS = ["version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor"]
MEMBERS += ["decoder", "model", "model.type", "model.vocab", "model.merges", "model.unk_token", "model.dropout"]
CHANGES = [(member, value) for member in MEMBERS for value in VALUES]


@pytest.mark.parametrize(("member", "value"), drawn(CHANGES), ids=repr)
def test_a_member_of_tokenizer_json(member, value, data_file, tmp_path):
    path = tmp_path / "tokenizer.json"
    write_tokenizer(path)
    content = json.loads(path.read_text())
    place = content
    *outer, last = member.split(".")
    for name in outer:
        place = place[name]
    place[last] = value
    path.write_text(json.dumps(content))
    ended = read_data(str(data_file), str(path))
    assert not ended.refused or str(path) in ended.err


@pytest.mark.parametrize("kind", drawn([*damaged(bytes(99), 0), "a folder"]))
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_tokenizer_file(name, kind, data_file, tmp_path):
    write_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<s>", "eos_token": {"content": "</s>"}}')
    tokenizer = str(tmp_path / "tokenizer.json")
    assert read_data(str(data_file), tokenizer).code == 0
    content = (tmp_path / name).read_bytes()
    replace(tmp_path / name, (damaged(content, 5) | {"a folder": None})[kind])
    ended = read_data(str(data_file), tokenizer)
    assert ended.refused or kind.startswith("bit")
    assert not ended.refused or name in ended.err


NAMES = [None, [], {}, 3, "", "nothing", ["<s>"], {"content": None}, {"content": 3}, {"content": "</s>"}, True]


@pytest.mark.parametrize("value", NAMES, ids=repr)
@pytest.mark.parametrize("name", ["bos_token", "eos_token"])
def test_a_name_of_a_token(name, value, data_file, tmp_path):
    """bos may be null, as in Qwen 2."""
    write_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({name: value}))
    ended = read_data(str(data_file), str(tmp_path / "tokenizer.json"))
    good = value == {"content": "</s>"} or (name == "bos_token" and value in (None, {"content": None}))
    assert ended.refused != good
