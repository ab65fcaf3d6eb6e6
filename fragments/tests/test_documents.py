"""Documents from files of every format, and their tokens; files that cannot be used are named."""

import bz2
import csv
import dataclasses
import gzip
import json
import lzma
import os
import random
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest
import tokenizers
from array_record.python.array_record_module import ArrayRecordWriter

from generator.language.roles import (
    PRESETS,
    TEXTS,
    InputError,
    find_files,
    load_tokenizer,
    make_datasets,
    open_documents,
    open_file,
    write_jsonl,
)


def make_config(data: str, **fields):
    return dataclasses.replace(PRESETS["tiny"], **dict(data=data, sequence_length=64) | fields)


def read_all(data: str, field: str = "text") -> list[str]:
    documents = open_documents(data, field)
    return [documents[i] for i in range(len(documents))]


def test_every_format_gives_the_same_documents(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    for i, text in enumerate(TEXTS):
        (tmp_path / f"texts/{i // 60}").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"texts/{i // 60}/{i:03}.{'txt' if i % 2 else 'py'}").write_text(text)
    (tmp_path / "texts/.hidden").mkdir()
    (tmp_path / "texts/.hidden/x.txt").write_text("no document")
    (tmp_path / "texts/empty.txt").touch()
    parquet.write_table(pyarrow.table({"n": range(120), "text": TEXTS}), tmp_path / "t.parquet", row_group_size=50)
    (tmp_path / "records").mkdir()
    for shard, texts in enumerate([TEXTS[:70], TEXTS[70:]]):
        writer = ArrayRecordWriter(str(tmp_path / f"records/t.array_record-0000{shard}-of-00002"))
        for text in texts:
            writer.write(text.encode())
        writer.close()
    names = [write_jsonl(tmp_path), *(str(tmp_path / name) for name in ("t.parquet", "records", "texts", "texts/*/*"))]
    for name in names:
        assert read_all(name) == TEXTS, name


def write_rows(folder: Path, field: str, texts: list[str | None]) -> None:
    """Writes the same rows in every format that has rows, plain and compressed."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{"id": i, field: text, "null": None} for i, text in enumerate(texts)]
    lines = "".join(json.dumps(row, ensure_ascii=bool(row["id"] % 2)) + "\n" for row in rows)
    (folder / "t.ndjson").write_text(lines)
    (folder / "lines.json").write_text("\ufeff" + lines)
    (folder / "t.json").write_text("\ufeff\n" + json.dumps(rows, indent=2))
    for name, delimiter, quoting in ("t.csv", ",", csv.QUOTE_MINIMAL), ("t.tsv", "\t", csv.QUOTE_ALL):
        with (folder / name).open("w", newline="", encoding="utf-8-sig") as file:
            made = csv.writer(file, delimiter=delimiter, quoting=quoting)
            made.writerows([rows[0].keys(), [], *(row.values() for row in rows)])
    table = pyarrow.table({"id": [*range(len(rows))], field: texts})
    parquet.write_table(table, folder / "t.parquet", row_group_size=7)
    parquet.write_table(table, folder / "untold.parquet", row_group_size=7, write_statistics=False)
    for name, make in ("t.arrow", pyarrow.ipc.new_file), ("stream.arrow", pyarrow.ipc.new_stream):
        with make(folder / name, table.schema) as writer:
            writer.write_table(table, max_chunksize=7)
    saved = folder / "saved" / "train"  # as save_to_disk of datasets leaves it
    saved.mkdir(parents=True)
    shutil.copy(folder / "stream.arrow", saved / "data-00000-of-00001.arrow")
    shutil.copy(folder / "stream.arrow", saved / "cache-1234.arrow")
    (saved / "dataset_info.json").write_text("{}")
    (saved / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    (folder / "saved" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    for name in "t.ndjson", "t.json", "t.csv", "t.tsv":
        content = (folder / name).read_bytes()
        half = len(content) // 2  # like cat of two files
        for suffix, pack in (".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress):
            (folder / f"{name}{suffix}").write_bytes(pack(content[:half]) + pack(content[half:]))
        with pyarrow.output_stream(folder / f"{name}.zst", compression="zstd") as file:
            file.write(content)


@pytest.mark.parametrize("field", ["text", 'größe "x"'])
def test_rows_of_every_format_are_the_same_and_nulls_are_counted(tmp_path, field, capsys):
    texts: list[str | None] = [*TEXTS[:30], 'quoted ", and\na line', ' "text": null ', "a\u2028b\x85c", *TEXTS[30:]]
    texts[0] = texts[17] = texts[-1] = None
    write_rows(tmp_path, field, texts)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 10 + 4 * 4
    for name in names:
        found = open_documents(str(tmp_path / name), field)
        assert list(found) == [text for text in texts if text is not None], name
        assert "3 rows without a text (null) are left out" in capsys.readouterr().err
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(InputError, match="saved: has the splits train, test: give the folder of one of them"):
        find_files(str(tmp_path / "saved"))


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_a_compressed_text_is_cut_as_it_is_and_a_damaged_one_is_named(tmp_path, suffix):
    pyarrow = pytest.importorskip("pyarrow")
    text = "".join(f"line {i} ü" + "x" * (i % 300) + "\n" for i in range(1000))
    packed = tmp_path / f"b.txt{suffix}"
    if suffix == ".zst":
        with pyarrow.output_stream(packed, compression="zstd") as file:
            file.write(text.encode())
    else:
        packed.write_bytes({".gz": gzip, ".bz2": bz2, ".xz": lzma}[suffix].compress(text.encode()))
    (tmp_path / "a.txt").write_text(text)
    assert read_all(str(packed)) == read_all(str(tmp_path / "a.txt"))
    content = packed.read_bytes()
    for damaged in content[: len(content) // 2], b"no archive", content[:40] + b"xxxx" + content[44:]:
        packed.write_bytes(damaged)
        open_documents.cache_clear()
        with pytest.raises(InputError, match=rf"b\.txt{suffix}: cannot be unpacked: .*: fetch it again"):
            open_documents(str(packed))


@pytest.mark.parametrize("name", ["none.parquet", "snappy.parquet", "zstd.parquet", "file.arrow", "stream.arrow"])
def test_a_damaged_file_of_columns_is_named(tmp_path, name):
    pyarrow, parquet = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    table, path, draw = pyarrow.table({"text": TEXTS, "n": range(len(TEXTS))}), tmp_path / name, random.Random(name)
    if path.suffix == ".parquet":
        parquet.write_table(table, path, compression=path.stem)
    else:
        new = pyarrow.ipc.new_file if path.stem == "file" else pyarrow.ipc.new_stream
        with new(str(path), table.schema) as file:
            file.write_table(table)
    content, refused = path.read_bytes(), 0
    for number in range(100):
        start, size = draw.randrange(len(content)), draw.choice([1, 8, 200])
        damage = draw.choice([bytes(size), draw.randbytes(size)])
        path = path.with_stem(f"{number}")  # as row groups are cached by path
        path.write_bytes((content[:start] + damage + content[start + size :])[: len(content)])
        try:
            list(open_documents(str(path)))
        except InputError as error:
            assert path.name in str(error)
            refused += 1
    assert refused > 20


def test_a_file_is_not_opened_for_each_record(tmp_path):
    path = write_jsonl(tmp_path, TEXTS)
    documents, opened = open_documents(path), []
    sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None)
    assert [documents[i] for i in range(120)] == TEXTS
    assert opened.count(path) <= 1


def test_a_file_that_leaves_the_cache_stays_open_while_it_is_read(tmp_path, monkeypatch):
    documents, pread = open_documents(write_jsonl(tmp_path)), os.pread

    def read_later(*arguments):
        open_file.cache_clear()  # as another thread may
        return pread(*arguments)

    monkeypatch.setattr(os, "pread", read_later)
    assert [documents[i] for i in range(120)] == TEXTS


def test_of_parquet_a_few_row_groups_are_in_memory(tmp_path):
    """Reads 40 groups of 1 MB, in any order."""
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    texts = [f"{i} " + "x" * 100_000 for i in range(400)]
    parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "t.parquet", row_group_size=10)
    before = pyarrow.total_allocated_bytes()
    documents = open_documents(str(tmp_path / "t.parquet"))
    groups = random.Random(0).sample(range(40), 40)
    order = [10 * group + i for group in groups for i in range(10)]
    assert [documents[i] for i in order] == [texts[i] for i in order]
    assert pyarrow.total_allocated_bytes() - before < 20 * 2**20


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
    (tmp_path / "tokenizer").mkdir()
    tokenizer.save(str(tmp_path / "tokenizer/tokenizer.json"))
    return tmp_path / "tokenizer/tokenizer.json"


def test_tokenizer_json_round_trip(tmp_path, tokenizer_json):
    tokenizer = load_tokenizer(str(tokenizer_json))
    assert (tokenizer.prefix, tokenizer.eos, tokenizer.vocab_size) == ([0], 1, 300)
    for text in [*TEXTS, " two  spaces\n", "a </s> in the text ends nothing", ""]:
        ids = tokenizer.encode(text)
        assert not {0, 1} & set(ids) and tokenizer.decode([0, *ids, 1]) == text
    config = make_config(write_jsonl(tmp_path), tokenizer=str(tokenizer_json), vocab_size=300)
    row = next(iter(make_datasets(config, "eval")[0]))
    assert tokenizer.decode(row["tokens"][row["segment_ids"] == 1]) in TEXTS

    begun, ended, ticks = threading.Event(), threading.Event(), []

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
    assert len([at for at in ticks if start < at < stop]) > 5  # other threads run meanwhile


def error_of(config) -> str:
    with pytest.raises(InputError) as caught:
        list(make_datasets(config, "eval")[0])
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.jsonl", b'{"text": "a"}\n\n{"text": \n', r"t\.jsonl:3: must be JSON with a field text: JSONDecodeError"),
        ("t.jsonl", b'{"text": "a"}\n\r\n}\n', r"t\.jsonl:3: must be JSON with a field text: JSONDecodeError"),
        ("t.jsonl", b'{"body": "a"}\n' * 2, r"t\.jsonl:1: must be JSON with a field text: KeyError: 'text'"),
        ("t.jsonl", b'["a"]\n' * 2, r"t\.jsonl:1: must be JSON with a field text: TypeError"),
        ("t.jsonl", b'{"text": null}\n' * 2, r"t\.jsonl: 0 documents, 0 of them held out, are too few"),
        ("t.jsonl", b'{"text": ["a"]}\n' * 2, r"t\.jsonl:1: the text is \['a'\], not a string"),
        ("t.jsonl", b'{"text": "\xff"}\n' * 2, r"t\.jsonl:1: must be JSON with a field text: UnicodeDecodeError"),
        (
            "t.jsonl",
            (b'{"text": ' + b"[" * 100_000 + b"\n") * 2,
            r"t\.jsonl:1: must be JSON .*: RecursionError",
        ),
        ("t.txt", b"\xe4" * 70_000, r"t\.txt from byte 0: byte 0 is not UTF-8: convert it to UTF-8"),
        ("t.zip", b"PK\x03\x04\0\0", r"t\.zip: neither text nor a file type that is known: unpack it"),
        ("t.json", b'["a", {"body": "b"}]', r"t\.json: must be a list of objects with a field text: KeyError: 'text'"),
        ("t.json", b'[{"text": 3}]' * 2, r"t\.json: must be a list of objects with a field text: JSONDecodeError"),
        ("t.json", b"[" * 100_000, r"t\.json: must be a list of objects with a field text: RecursionError"),
        ("t.json", b'{\n"text": "a"}', r"t\.json:1: must be JSON with a field text: JSONDecodeError"),
        ("t.csv", b"body,n\na,1\n", r"t\.csv:1: must be CSV with a column text: it has no columns of that name: fix"),
        ("t.csv", b"text,text\na,1\n", r"t\.csv:1: must be CSV with a column text: it has 2 columns of that name"),
        ("t.csv", b"", r"t\.csv:0: must be CSV with a column text"),
        ("t.csv", b"text,n\na,1\nb, and c,2\n", r"t\.csv:3: must be CSV .*: 3 cells, and the first line has 2"),
        ("t.csv", b'text,n\na,1\n"b\n,2\n', r"t\.csv:4: must be CSV with a column text: unexpected end of data"),
        ("t.csv", b"text\n\xff\n", r"t\.csv:1: must be CSV with a column text: 'utf-8' codec can't decode"),
        ("t.arrow", b"ARROW1\0\0", r"t\.arrow: must be Arrow with a column text: "),
        ("t.arrow", b"", r"t\.arrow: must be Arrow with a column text: "),
        ("t.parquet.gz", gzip.compress(b"PAR1", mtime=0), r"t\.parquet\.gz: unpack it"),
        ("t.parquet", b"PAR1", r"t\.parquet: must be Parquet with a column text: "),
        ("t.array_record", b"abc", r"t\.array_record: must be an ArrayRecord file: "),
        ("t.txt", b"short", r"t\.txt: 1 documents, 1 of them held out, are too few: give more"),
        ("t.txt", b"", r"t\.txt: 0 documents, 0 of them held out, are too few"),
    ],
)
def test_unusable_files_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    config = make_config(str(tmp_path / name))
    with pytest.raises(InputError, match=message) as caught:
        list(make_datasets(config, "eval")[0])
        next(iter(make_datasets(config, "train")[0]))
    assert "\n" not in str(caught.value)


def test_half_a_surrogate_pair_is_replaced_and_the_rest_stays(tmp_path):
    path = tmp_path / "t.JSONL"
    path.write_bytes(rb'{"text": "a \ud800 b \udc00\ud83d\ude00"}')
    wanted = "a \N{REPLACEMENT CHARACTER} b \N{REPLACEMENT CHARACTER}\N{GRINNING FACE}"
    assert list(open_documents(str(path))) == [wanted]
    assert load_tokenizer("bytes").decode(load_tokenizer("bytes").encode(wanted)) == wanted


@pytest.mark.parametrize("name", ["t.jsonl", "t.txt"])
def test_a_file_that_is_cut_while_it_is_read_is_named(tmp_path, name):
    (tmp_path / name).write_bytes(b'{"text": "abc"}\n' * 3)
    documents = open_documents(str(tmp_path / name))
    (tmp_path / name).write_bytes(b'{"text": "abc"}\n' * 2)
    with pytest.raises(InputError, match="has been cut to 32 bytes"):
        list(documents)


def test_a_link_to_nothing_is_named(tmp_path):
    (tmp_path / "t.txt").symlink_to(tmp_path / "gone")
    assert "t.txt: is not a file, or is a broken link" in error_of(make_config(str(tmp_path)))


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


def test_settings_that_do_not_fit_are_named(tmp_path, tokenizer_json, monkeypatch):
    config = make_config(write_jsonl(tmp_path))
    replace = dataclasses.replace
    assert "no such file: give a file, a folder" in error_of(replace(config, data=str(tmp_path / "no")))
    assert "no such file" in error_of(replace(config, data=str(tmp_path / "*.md")))
    assert "give the path of a tokenizer.json, or bytes" in error_of(replace(config, tokenizer="llama"))
    assert "give the path of a tokenizer.json" in error_of(replace(config, tokenizer=""))
    assert "give the path of a tokenizer.json" in error_of(replace(config, tokenizer=config.data))
    (tmp_path / "plain").mkdir()
    plain = tmp_path / "plain/tokenizer.json"  # without bos
    plain.write_text(json.dumps(json.loads(tokenizer_json.read_text()) | {"post_processor": None}))
    (tmp_path / "empty.jsonl").write_text('{"text": ""}\n' * 3)
    nothing = replace(config, data=str(tmp_path / "empty.jsonl"), tokenizer=str(plain), vocab_size=300)
    with pytest.raises(InputError, match="has two tokens: give longer ones"):
        make_datasets(nothing, "train")
    small = replace(config, tokenizer=str(tokenizer_json), vocab_size=299)
    assert "its 300 tokens exceed a vocab_size of 299: raise that" in error_of(small)
    (tmp_path / "t.parquet").touch()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "t.parquet: needs pyarrow: pip install pyarrow" in error_of(
        replace(config, data=str(tmp_path / "t.parquet"))
    )


def test_a_parquet_file_without_the_column_is_named(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    parquet.write_table(pyarrow.table({"body": ["a"]}), tmp_path / "a.parquet")
    assert "a.parquet: must be Parquet with a column text: " in error_of(make_config(str(tmp_path / "a.parquet")))
    parquet.write_table(pyarrow.table({"text": [3, 4]}), tmp_path / "b.parquet")
    assert "b.parquet: row 0: the text is 3, not a string" in error_of(make_config(str(tmp_path / "b.parquet")))
    assert read_all(str(tmp_path / "a.parquet"), "body") == ["a"]
