"""From files to batches, against the documents themselves."""

import collections
import dataclasses
import importlib
import itertools
import json
import math
import sys
import types
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint
import pytest
import tokenizers
from array_record.python.array_record_module import ArrayRecordWriter

from generator.roles import (
    PRESETS,
    Batches,
    InputError,
    Rows,
    find_files,
    held_out_batches,
    load_tokenizer,
    make_datasets,
    open_documents,
)

pipeline = importlib.import_module("..data", __package__)


TEXTS = [f"document {i}: " + "ünï" * (i % 7) * (i % 11) for i in range(120)]  # 13 to 308 bytes


@pytest.fixture(autouse=True)
def few_bins(monkeypatch):
    """So that a few batches see all documents."""
    monkeypatch.setattr(pipeline, "PACKING_BINS", 16)


def write_jsonl(folder: Path, texts: list[str] = TEXTS) -> str:
    path = folder / "texts.jsonl"
    path.write_text("\n\n".join(json.dumps({"text": text, "n": i}) for i, text in enumerate(texts)) + "\n\n")
    return str(path)


def make_config(data: str, **fields):
    return dataclasses.replace(PRESETS["tiny"], **dict(data=data, sequence_length=64, batch_size=4) | fields)


@dataclasses.dataclass(frozen=True)
class Device:
    process_index: int


def make_batches(config, processes: int = 1, rows_shared_by: int = 1) -> list[Batches]:
    """What each process of a job feeds, where so many of them in a row hold the same rows."""
    shares = processes // rows_shared_by
    size = config.batch_size // shares

    def devices_indices_map(shape):
        rows = {process: process // rows_shared_by * size for process in range(processes)}
        return {Device(p): (slice(r, r + size), slice(None)) for p, r in rows.items()}

    found = []
    for process in range(processes):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jax, "process_index", lambda: process)
            found.append(Batches(config, types.SimpleNamespace(devices_indices_map=devices_indices_map)))
    return found


def take(data, count: int) -> list[dict[str, np.ndarray]]:
    return list(itertools.islice(data, count))


def evaluation(config) -> list[dict[str, np.ndarray]]:
    return held_out_batches(dataclasses.replace(config, eval_batches=100), list(range(config.batch_size)))


def read_all(data: str) -> list[str]:
    documents = open_documents(data)
    return [documents[i] for i in range(len(documents))]


def segments(batches) -> list[tuple[list[int], list[int]]]:
    """Tokens and targets of each segment."""
    found = []
    for batch in batches:
        for tokens, targets, ids in zip(batch["tokens"], batch["targets"], batch["segment_ids"], strict=True):
            for n in range(1, ids.max() + 1):
                found.append((tokens[ids == n].tolist(), targets[ids == n].tolist()))
    return found


def pieces(texts: list[str], length: int) -> list[tuple[list[int], list[int]]]:
    """What the segments must be: inputs and targets of bos + bytes + eos, cut at `length`."""
    found = []
    for text in texts:
        tokens = [256, *text.encode(), 257]
        for start in range(0, len(tokens) - 1, length):
            stop = min(start + length, len(tokens) - 1)
            found.append((tokens[start:stop], tokens[start + 1 : stop + 1]))
    return found


def equal(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def test_packed_sequences_hold_the_documents(tmp_path):
    batches = evaluation(make_config(write_jsonl(tmp_path)))
    assert sorted(segments(batches)) == sorted(pieces(TEXTS[::50], 64))
    for batch in batches:
        assert {name: (x.shape, x.dtype.name) for name, x in batch.items()} == {
            "tokens": ((4, 64), "int32"),
            "targets": ((4, 64), "int32"),
            "positions": ((4, 64), "int32"),
            "segment_ids": ((4, 64), "int32"),
            "weights": ((4, 64), "float32"),
        }
        np.testing.assert_array_equal(batch["weights"], batch["segment_ids"] > 0)
        for ids, positions in zip(batch["segment_ids"], batch["positions"], strict=True):
            runs = [(n, len(list(run))) for n, run in itertools.groupby(ids.tolist())]
            assert [n for n, _ in runs if n] == list(range(1, ids.max() + 1))  # each segment is one stretch
            assert 0 not in [n for n, _ in runs[:-1]]  # padding comes last
            assert positions.tolist() == [p for n, size in runs for p in (range(size) if n else [0] * size)]


def test_training_goes_through_all_documents_in_another_order_each_epoch(tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "PACKING_BINS", 1)  # sequences then come in the order of the documents
    config = make_config(write_jsonl(tmp_path), batch_size=1)
    trained = [text for i, text in enumerate(TEXTS) if i % 50]

    def order(config) -> list[list[int]]:
        """The first piece of each document."""
        batches = take(*make_batches(config), 600)
        return [tokens for tokens, _ in segments(batches) if tokens[0] == 256]

    found = order(config)
    first, second = found[: len(trained)], found[len(trained) : 2 * len(trained)]
    assert sorted(first) == sorted(second) == sorted([256, *text.encode()][:64] for text in trained)
    assert first != second
    assert order(config) == found
    assert order(dataclasses.replace(config, seed=1))[: len(trained)] not in (first, second)


def test_little_is_padding(monkeypatch):
    monkeypatch.undo()
    config = dataclasses.replace(PRESETS["tiny"], batch_size=64)
    batches = take(*make_batches(config), 16)
    assert np.mean([batch["weights"] for batch in batches]) > 0.98


@pytest.mark.parametrize(("count", "rows"), [(120, 4), (120, 13), (5, 8)])
def test_each_document_is_dealt_to_one_row_in_each_epoch(tmp_path, monkeypatch, count, rows):
    monkeypatch.setattr(pipeline, "PACKING_BINS", 1)
    config, epochs = make_config(write_jsonl(tmp_path, TEXTS[:count]), batch_size=rows, eval_share=0.0), 4
    seen = collections.Counter()
    for row, dataset in enumerate(make_datasets(config, "train", range(rows))):
        sequences = ({name: values[None] for name, values in sequence.items()} for sequence in dataset)
        documents = (bytes(tokens[1:]) for s in sequences for tokens, _ in segments([s]) if tokens[0] == 256)
        seen.update(itertools.islice(documents, len(range(row, epochs * count, rows))))
    assert seen == {text.encode()[:63]: epochs for text in TEXTS[:count]}


@pytest.mark.parametrize("consumed", [0, 1, 5, 70])  # 70 batches are more than two epochs
def test_any_number_of_processes_goes_on_with_the_same_batches(tmp_path, consumed):
    config = make_config(write_jsonl(tmp_path))
    (alone,) = make_batches(config)
    take(alone, consumed)
    pair = make_batches(config, processes=2)
    for data in pair:
        take(data, consumed)
    four = make_batches(config, processes=4, rows_shared_by=2)
    for data in four:
        take(data, consumed)
    states = {}
    for data in pair:
        assert not set(states) & set(data.get_state())
        states |= data.get_state()
    assert states == alone.get_state() == four[0].get_state() | four[2].get_state()
    assert four[1].get_state() == four[3].get_state() == {}  # their rows are kept by the process before
    with orbax.checkpoint.CheckpointManager(tmp_path / "checkpoints") as manager:
        manager.save(1, args=orbax.checkpoint.args.Composite(data=Rows(states)))
        states = manager.restore(1, args=orbax.checkpoint.args.Composite(data=Rows()))["data"]
    whole = take(alone, 10)
    for processes, shared in (1, 1), (2, 1), (2, 2), (4, 1), (4, 2):
        job = make_batches(config, processes, shared)
        for data in job:
            data.set_state(states, consumed)
        for expected in whole:
            parts = [next(data) for data in job][::shared]
            assert equal({name: np.concatenate([part[name] for part in parts]) for name in expected}, expected)


def test_another_batch_size_goes_on_in_a_new_order(tmp_path, capsys):
    config = make_config(write_jsonl(tmp_path))
    states = make_batches(config)[0].get_state()
    first, again, later = (make_batches(dataclasses.replace(config, batch_size=2))[0] for _ in range(3))
    fresh = take(make_batches(dataclasses.replace(config, batch_size=2))[0], 3)
    first.set_state(states, 7)
    assert capsys.readouterr().out == "batch_size was 4: the documents come in a new order from here on\n"
    batches = take(first, 3)
    assert not any(map(equal, batches, fresh))
    again.set_state(states, 7)
    assert all(map(equal, batches, take(again, 3)))
    later.set_state(first.get_state(), 10)  # the new order is kept
    assert all(map(equal, take(first, 3), take(later, 3)))


def test_processes_share_the_documents(tmp_path):
    config = make_config(write_jsonl(tmp_path))
    trained = [text for i, text in enumerate(TEXTS) if i % 50]
    batches = take(*make_batches(config), 120)
    assert batches[0]["tokens"].shape == (4, 64)
    found = segments(batches)
    assert {json.dumps(segment) for segment in found} == {json.dumps(segment) for segment in pieces(trained, 64)}


def test_evaluation_is_the_same_over_any_processes(tmp_path):
    config = make_config(write_jsonl(tmp_path), eval_share=0.3, eval_batches=100)
    whole = evaluation(config)
    assert sorted(segments(whole)) == sorted(pieces([t for i, t in enumerate(TEXTS) if is_held_out(i, 0.3)], 64))
    parts = [held_out_batches(config, rows) for rows in ([0], [1, 2], [3])]
    for batches, batch in zip(zip(*parts, strict=True), whole, strict=True):
        assert equal({name: np.concatenate([b[name] for b in batches]) for name in batch}, batch)


def is_held_out(number: int, share: float) -> bool:
    return math.ceil(number * share) < math.ceil((number + 1) * share)


def test_what_is_held_out_is_chosen(tmp_path):
    (tmp_path / "other").mkdir()
    data, other = write_jsonl(tmp_path), write_jsonl(tmp_path / "other", ["one", "two"])

    def trained(config) -> set[int]:
        texts = [bytes(tokens[1:]) for tokens, _ in segments(take(*make_batches(config), 120)) if tokens[0] == 256]
        return {i for i, text in enumerate(TEXTS) if text.encode()[:63] in texts}

    none = make_config(data, eval_share=0.0)
    assert held_out_batches(none, [0]) == [] and trained(none) == set(range(120))
    own = make_config(data, eval_data=other)
    assert sorted(segments(evaluation(own))) == sorted(pieces(["one", "two"], 64)) and trained(own) == set(range(120))
    half = make_config(data, eval_share=0.5)
    assert trained(half) == set(range(1, 120, 2))
    assert sorted(segments(evaluation(half))) == sorted(pieces(TEXTS[::2], 64))


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
    assert (tokenizer.bos, tokenizer.eos, tokenizer.vocab_size) == (0, 1, 300)
    for text in [*TEXTS, " two  spaces\n", "a </s> in the text ends nothing", ""]:
        ids = tokenizer.encode(text)
        assert not {0, 1} & set(ids) and tokenizer.decode([0, *ids, 1]) == text
    config = make_config(write_jsonl(tmp_path), tokenizer=str(tokenizer_json), vocab_size=300)
    tokens = [ids for ids, _ in segments(evaluation(config))]
    assert TEXTS[0] in [tokenizer.decode(ids) for ids in tokens]

    settings = {"bos_token": {"content": "</s>"}, "eos_token": "<s>", "model_max_length": 10}
    tokenizer_json.with_name("tokenizer_config.json").write_text(json.dumps(settings))
    assert (load_tokenizer(str(tokenizer_json)).bos, load_tokenizer(str(tokenizer_json)).eos) == (1, 0)
    tokenizer_json.with_name("tokenizer_config.json").write_text('{"bos_token": "[CLS]"}')
    with pytest.raises(
        InputError, match=r"has not both of \['\[CLS\]', '</s>'\]: set bos_token and eos_token in .*json"
    ):
        load_tokenizer(str(tokenizer_json))


def error_of(config) -> str:
    with pytest.raises(InputError) as caught:
        evaluation(config)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.jsonl", b'{"text": "a"}\n\n{"text": \n', r"t\.jsonl:3: must be JSON with a field text: JSONDecodeError"),
        ("t.jsonl", b'{"body": "a"}\n' * 2, r"t\.jsonl:1: must be JSON with a field text: KeyError: 'text'"),
        ("t.jsonl", b'["a"]\n' * 2, r"t\.jsonl:1: must be JSON with a field text: TypeError"),
        ("t.jsonl", b'{"text": null}\n' * 2, r"t\.jsonl:1: the text is None, not a string"),
        ("t.jsonl", b'{"text": "\xff"}\n' * 2, r"t\.jsonl:1: must be JSON with a field text: UnicodeDecodeError"),
        (
            "t.jsonl",
            (b'{"text": ' + b"[" * 100_000 + b"\n") * 2,
            r"t\.jsonl:1: must be JSON .*: RecursionError",
        ),
        ("t.txt", b"\xe4" * 70_000, r"t\.txt from byte 0: byte 0 is not UTF-8: convert it to UTF-8"),
        ("t.gz", b"\x1f\x8b\0\0", r"t\.gz: not text, nor of another suffix that is known: unpack it"),
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
        evaluation(config)
        take(*make_batches(config), 1)
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
    assert "t.txt: is no file, or a link to none" in error_of(make_config(str(tmp_path)))


@pytest.mark.parametrize("bos", [None, [], 3, {"content": 3}, "nothing"])
def test_a_document_begins_with_eos_where_bos_is_null(tokenizer_json, bos):
    tokenizer_json.with_name("tokenizer_config.json").write_text(json.dumps({"bos_token": bos}))
    if bos is None:  # as Qwen 2 has it
        assert load_tokenizer(str(tokenizer_json)).bos == load_tokenizer(str(tokenizer_json)).eos == 1
    else:
        with pytest.raises(InputError, match="set bos_token and eos_token in"):
            load_tokenizer(str(tokenizer_json))


def test_settings_that_do_not_fit_are_named(tmp_path, tokenizer_json, monkeypatch):
    config = make_config(write_jsonl(tmp_path))
    replace = dataclasses.replace
    assert "no such file: give a file, a folder" in error_of(replace(config, data=str(tmp_path / "no")))
    assert "no such file" in error_of(replace(config, data=str(tmp_path / "*.md")))
    assert "give the path of a tokenizer.json, or bytes" in error_of(replace(config, tokenizer="llama"))
    assert "give the path of a tokenizer.json" in error_of(replace(config, tokenizer=config.data))
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
    parquet.write_table(pyarrow.table({"text": [None, "a"]}), tmp_path / "b.parquet")
    assert "b.parquet: row 0: the text is None, not a string" in error_of(make_config(str(tmp_path / "b.parquet")))
