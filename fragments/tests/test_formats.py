"""Documents of every format, plain and compressed; files that cannot be used are named."""

import bz2
import csv
import gzip
import json
import lzma
import random
import shutil
import sys
from pathlib import Path

import pytest
from array_record.python.array_record_module import ArrayRecordWriter

from generator.language import splice
from generator.language.roles import TEXTS, InputError, find_files, open_documents, write_jsonl


@splice("test_documents.formats", optional=True)
def _(read):
    read("train.jsonl", "c4.00000-of-00002.jsonl.gz")
    read("a.md", "c.txt.zst")
    read("train-00000-of-00001.parquet")


def read_all(data: str, field: str = "text") -> list[str]:
    documents = open_documents(data, field)[0]
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
        found = open_documents(str(tmp_path / name), field)[0]
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
    table = pyarrow.table({"text": TEXTS, "n": range(len(TEXTS))})
    path = tmp_path / name
    draw = random.Random(name)
    if path.suffix == ".parquet":
        parquet.write_table(table, path, compression=path.stem)
    else:
        new = pyarrow.ipc.new_file if path.stem == "file" else pyarrow.ipc.new_stream
        with new(str(path), table.schema) as file:
            file.write_table(table)
    content = path.read_bytes()
    refused = 0
    for number in range(100):
        start = draw.randrange(len(content))
        size = draw.choice([1, 8, 200])
        damage = draw.choice([bytes(size), draw.randbytes(size)])
        path = path.with_stem(f"{number}")  # as row groups are cached by path
        path.write_bytes((content[:start] + damage + content[start + size :])[: len(content)])
        try:
            list(open_documents(str(path))[0])
        except InputError as error:
            assert path.name in str(error)
            refused += 1
    assert refused > 20


def test_of_parquet_a_few_row_groups_are_in_memory(tmp_path):
    """Reads 40 groups of 1 MB, in any order."""
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    texts = [f"{i} " + "x" * 100_000 for i in range(400)]
    parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "t.parquet", row_group_size=10)
    before = pyarrow.total_allocated_bytes()
    documents = open_documents(str(tmp_path / "t.parquet"))[0]
    groups = random.Random(0).sample(range(40), 40)
    order = [10 * group + i for group in groups for i in range(10)]
    assert [documents[i] for i in order] == [texts[i] for i in order]
    assert pyarrow.total_allocated_bytes() - before < 20 * 2**20


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
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
    ],
)
def test_unusable_files_of_other_formats_are_named(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        list(open_documents(str(path))[0])
    assert "\n" not in str(caught.value)


def test_a_parquet_file_without_the_column_is_named(tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    parquet.write_table(pyarrow.table({"body": ["a"]}), tmp_path / "a.parquet")
    parquet.write_table(pyarrow.table({"text": [3, 4]}), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"a\.parquet: must be Parquet with a column text: "):
        open_documents(str(tmp_path / "a.parquet"))
    with pytest.raises(InputError, match=r"b\.parquet: row 0: the text is 3, not a string"):
        read_all(str(tmp_path / "b.parquet"))
    assert read_all(str(tmp_path / "a.parquet"), "body") == ["a"]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "c.parquet").touch()
    with pytest.raises(InputError, match=r"c\.parquet: needs pyarrow: pip install pyarrow"):
        open_documents(str(tmp_path / "c.parquet"))
