"""Documents from text and JSONL; files that cannot be used are named."""

import dataclasses
import json
import os
import sys

import pytest

from generator.language import point
from generator.language.roles import (
    PRESETS,
    TEXTS,
    InputError,
    find_files,
    load_tokenizer,
    open_documents,
    open_file,
    read_sequences,
    write_jsonl,
)


def make_config(data: str, **fields):
    return dataclasses.replace(PRESETS["tiny"], **dict(data=data, sequence_length=64) | fields)


def read_all(data: str) -> list[str]:
    documents = open_documents(data)[0]
    return [documents[i] for i in range(len(documents))]


def test_a_file_is_not_opened_for_each_record(tmp_path):
    path = write_jsonl(tmp_path, TEXTS)
    documents = open_documents(path)[0]
    opened = []

    def record(event, arguments):
        if event == "open":
            opened.append(str(arguments[0]))

    sys.addaudithook(record)
    assert [documents[i] for i in range(120)] == TEXTS
    assert opened.count(path) <= 1


def test_a_file_that_leaves_the_cache_stays_open_while_it_is_read(tmp_path, monkeypatch):
    documents = open_documents(write_jsonl(tmp_path))[0]
    pread = os.pread

    def read_later(*arguments):
        open_file.cache_clear()  # as another thread may
        return pread(*arguments)

    monkeypatch.setattr(os, "pread", read_later)
    assert [documents[i] for i in range(120)] == TEXTS


def test_a_big_text_is_cut_at_line_ends(tmp_path):
    lines = [f"line {i} ü" + "x" * (i % 300) + "\n" for i in range(3000)]
    (tmp_path / "a.txt").write_text("".join(lines))
    (tmp_path / "b.txt").write_text("ü" * 200_000)  # no line end
    documents = read_all(str(tmp_path))
    assert "".join(documents) == "".join(lines) + "ü" * 200_000
    assert len(documents) == 8 + 7 and max(len(text.encode()) for text in documents) < 65_536 + 4096
    assert all(text.endswith("\n") for text in documents[:8])


def test_without_data_the_standard_library_is_read():
    files = find_files("")
    assert any(path.name == "dataclasses.py" for path in files) and all(path.suffix == ".py" for path in files)
    assert not any({"site-packages", "test"} & set(path.parts[-3:]) for path in files)
    assert len(read_all("")) >= len([path for path in files if path.stat().st_size]) > 300  # all are UTF-8


@pytest.mark.parametrize("field", ["text", 'größe "x"'])
def test_rows_without_a_text_are_left_out_and_counted(tmp_path, field, capsys):
    """Null in another field, or in a text, is none of these."""
    texts = [None, *TEXTS[:30], ' "text": null ', "null", None]
    rows = [{"null": None, field: text, "text2": None} for text in texts]
    lines = (json.dumps(row, ensure_ascii=bool(i % 2)) for i, row in enumerate(rows))
    (tmp_path / "t.ndjson").write_text("\n\r\n".join(lines))
    assert list(open_documents(str(tmp_path / "t.ndjson"), field)[0]) == texts[1:-1]
    assert "2 rows without a text (null) are left out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.jsonl", b'{"text": "a"}\n\n{"text": \n', r"t\.jsonl:3: must be JSON with a field text: JSONDecodeError"),
        ("t.jsonl", b'{"text": "a"}\n\r\n}\n', r"t\.jsonl:3: must be JSON with a field text: JSONDecodeError"),
        ("t.jsonl", b'{"body": "a"}\n' * 2, r"t\.jsonl:2: must be JSON with a field text: KeyError: 'text'"),
        ("t.jsonl", b'["a"]\n' * 2, r"t\.jsonl:2: must be JSON with a field text: TypeError"),
        (
            "t.jsonl",
            b'{"text": null}\n' * 2,
            r"t\.jsonl: of 0 documents 0 are held out, and none with text is left for eval",
        ),
        ("t.jsonl", b'{"text": ["a"]}\n' * 2, r"t\.jsonl:2: the text is \['a'\], not a string"),
        ("t.jsonl", b'{"text": "\xff"}\n' * 2, r"t\.jsonl:2: must be JSON with a field text: UnicodeDecodeError"),
        (
            "t.jsonl",
            (b'{"text": ' + b"[" * 100_000 + b"\n") * 2,
            r"t\.jsonl:2: must be JSON .*: RecursionError",
        ),
        ("t.txt", b"\xe4" * 70_000, r"t\.txt: byte 35000 is not UTF-8: convert it"),
        ("t.zip", b"PK\x03\x04\0\0", r"t\.zip: neither text nor a file type that is known: unpack it"),
        (
            "t.txt",
            b"short",
            r"t\.txt: of 1 documents 1 are held out, and none with text is left for train",
        ),
        ("t.txt", b"", r"t\.txt: of 0 documents 0 are held out, and none with text is left for eval"),
        (
            "t.jsonl",
            b'{"text": ""}\n' * 60,
            r"t\.jsonl: of 60 documents 2 are held out, and none with text is left for eval",
        ),
    ],
)
def test_unusable_files_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    config = make_config(str(tmp_path / name))
    with pytest.raises(InputError, match=message) as caught:
        list(read_sequences(config, "eval"))
        next(iter(read_sequences(config, "train")))
    assert "\n" not in str(caught.value)


def test_half_a_surrogate_pair_is_replaced_and_the_rest_stays(tmp_path):
    path = tmp_path / "t.JSONL"
    path.write_bytes(rb'{"text": "a \ud800 b \udc00\ud83d\ude00"}')
    wanted = "a \N{REPLACEMENT CHARACTER} b \N{REPLACEMENT CHARACTER}\N{GRINNING FACE}"
    assert list(open_documents(str(path))[0]) == [wanted]
    assert load_tokenizer("bytes").decode(load_tokenizer("bytes").encode(wanted)) == wanted


@pytest.mark.parametrize("name", ["t.jsonl", "t.txt"])
def test_a_file_that_is_cut_while_it_is_read_is_named(tmp_path, name):
    (tmp_path / name).write_bytes(b'{"text": "abc"}\n' * 3)
    documents = open_documents(str(tmp_path / name))[0]
    (tmp_path / name).write_bytes(b'{"text": "abc"}\n' * 2)
    with pytest.raises(InputError, match="has been cut to 32 bytes"):
        list(documents)


def test_what_is_not_there_or_is_no_file_is_named(tmp_path):
    for name in "no", "*.md", "":
        with pytest.raises(InputError, match="no file to read is there: give a file, a folder of files, or a pattern"):
            find_files(f"{tmp_path}/{name}")
    (tmp_path / "t.txt").symlink_to(tmp_path / "gone")
    with pytest.raises(InputError, match=r"t\.txt: is not a file, or is a broken link"):
        find_files(str(tmp_path))


def test_a_folder_has_one_format_and_what_is_left_out_is_told(tmp_path, capsys):
    """Rows, or else the format with the most bytes; numbers of shards and compression are no format."""
    others = "README.md", "LICENSE", "license-MIT.txt", "train.jsonl~", "part.jsonl.tmp", "x.JSONL.SWP"
    (tmp_path / ".train.jsonl.swp").write_text("hidden" * 99)
    for name in others:
        (tmp_path / name).write_text("no data " * 99)

    def read(*names: str, left_out: int = len(others)) -> None:
        for name in names:
            (tmp_path / name).write_text('{"text": "data"}\n' * 9)
        assert [file.name for file in find_files(str(tmp_path))] == sorted(names)
        said = capsys.readouterr().err
        assert sum(name in said for name in others) >= 4 and f"{left_out} are not, such as" in said
        for name in names:
            (tmp_path / name).unlink()

    read("train.jsonl", "NOTICES.JSONL", "more.ndjson", "c4.jsonl-00001-of-00002")
    read("c4-00000-of-00002.txt", "c4.txt-00003", "c4.txt.4", "part-00000", "wiki", "a.py", "b.md")
    point("test_documents.formats", read)
    (tmp_path / "corpus.txt").write_text("text" * 99)
    read("a.jsonl", left_out=7)
    (tmp_path / "corpus.txt").unlink()
    with pytest.raises(InputError, match="no file to read is there"):
        find_files(str(tmp_path))
    (tmp_path / "empty.jsonl").touch()
    assert find_files(str(tmp_path)) == [tmp_path / "empty.jsonl"]


def test_the_byte_order_mark_of_a_text_is_dropped(tmp_path):
    (tmp_path / "t.txt").write_bytes(b"\xef\xbb\xbftext \xef\xbb\xbf")
    (tmp_path / "t.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "text"}')
    assert read_all(str(tmp_path / "t.txt")) == ["text \ufeff"] and read_all(str(tmp_path / "t.jsonl")) == ["text"]
