"""From files to batches, against the documents themselves."""

import dataclasses
import importlib
import itertools
import json
import threading
import types
from collections.abc import Iterator
from unittest import mock

import numpy as np
import orbax.checkpoint
import pytest

from generator.language import requires
from generator.language.roles import (
    PRESETS,
    TEXTS,
    Batches,
    InputError,
    Sequences,
    held_out_batches,
    open_documents,
    open_source,
    write_jsonl,
)

requires("packing")

pipeline = importlib.import_module("..data", __package__)


@pytest.fixture(autouse=True)
def few_bins(monkeypatch):
    """Sets few bins, so that a few batches see all documents."""
    monkeypatch.setattr(pipeline, "PACKING_BINS", 16)


def make_config(data: str, **fields):
    return dataclasses.replace(PRESETS["tiny"], **dict(data=data, sequence_length=64, batch_size=4) | fields)


def make_batches(config, processes: int = 1, rows_shared_by: int = 1) -> list[Batches]:
    """Makes the batches of each process, where so many consecutive ones hold the same rows."""
    shares = processes // rows_shared_by
    size = config.batch_size // shares

    def sharding(process: int) -> types.SimpleNamespace:
        first = process // rows_shared_by * size
        indices = {"the only device": (slice(first, first + size), slice(None))}
        return types.SimpleNamespace(addressable_devices_indices_map=lambda shape: indices)

    return [Batches(config, sharding(process)) for process in range(processes)]


def take(data, count: int) -> list[dict[str, np.ndarray]]:
    return list(itertools.islice(data, count))


def evaluation(config) -> list[dict[str, np.ndarray]]:
    return held_out_batches(dataclasses.replace(config, eval_batches=100), list(range(config.batch_size)))


def read_all(data: str) -> list[str]:
    documents = open_documents(data)[0]
    return [documents[i] for i in range(len(documents))]


def segments(batches) -> list[tuple[list[int], list[int]]]:
    """Returns tokens and targets of each segment."""
    found = []
    for batch in batches:
        for tokens, targets, ids in zip(batch["tokens"], batch["targets"], batch["segment_ids"], strict=True):
            for n in range(1, ids.max() + 1):
                found.append((tokens[ids == n].tolist(), targets[ids == n].tolist()))
    return found


def pieces(texts: list[str], length: int) -> list[tuple[list[int], list[int]]]:
    """Returns the expected segments: inputs and targets of bos + bytes + eos, cut at `length`."""
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
    assert sorted(segments(batches)) == sorted(pieces(TEXTS[-3:], 64))
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
            assert [n for n, _ in runs if n] == list(range(1, ids.max() + 1))  # each segment is contiguous
            assert 0 not in [n for n, _ in runs[:-1]]  # padding comes last
            assert positions.tolist() == [p for n, size in runs for p in (range(size) if n else [0] * size)]


def test_training_goes_through_all_documents_in_another_order_each_epoch(tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "PACKING_BINS", 1)  # sequences then come in the order of the documents
    config = make_config(write_jsonl(tmp_path), batch_size=1)
    trained = TEXTS[:-3]

    def order(config) -> list[list[int]]:
        """Returns the first piece of each document."""
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


class Order(list):
    """Stands for documents in an order, which reads them without threads."""

    def __getitem__(self, place):
        return Order(super().__getitem__(place)) if isinstance(place, slice) else super().__getitem__(place)

    def to_iter_dataset(self, _) -> Iterator:
        return iter(self)


def test_each_document_comes_once_before_any_comes_again(monkeypatch):
    """Packs 1,000 random corpora; a run that is resumed anywhere goes on with the same sequences."""
    rng = np.random.default_rng(0)
    for corpus in range(1000):
        monkeypatch.setattr(pipeline, "PACKING_BINS", int(rng.integers(1, 20)))
        length = int(rng.integers(1, 40))
        sizes = rng.integers(0, 60, rng.integers(1, 20)) * (rng.random() < 0.9) + 1
        parts = [[min(length, size - start) for start in range(0, size, length)] for size in sizes]
        marks = [[{"tokens": np.full(size, 64 * i + n)} for n, size in enumerate(x)] for i, x in enumerate(parts)]
        documents = marks + [[]] * int(rng.integers(3))
        count = sum(map(len, marks))
        shuffled = [rng.permutation(len(documents)) for _ in range(4)]
        order = Order((n == 0, documents[i]) for numbers in shuffled for n, i in enumerate(numbers))
        sequences = Sequences(order, length)
        found = []
        stop = int(rng.integers(1, 3 * count + 1))
        while len(found) < stop:
            found += [piece["tokens"] for piece in next(sequences)]
        resumed = Sequences(order, length)
        resumed.set_state(json.loads(json.dumps(sequences.get_state())))
        while len(found) < 3 * count:
            one, other = next(sequences), next(resumed)
            assert [piece["tokens"].tolist() for piece in one] == [piece["tokens"].tolist() for piece in other]
            found += [piece["tokens"] for piece in one]
        ids = [int(tokens[0]) for tokens in found]
        wanted = sorted(int(piece["tokens"][0]) for x in marks for piece in x)
        for epoch in range(3):
            assert sorted(ids[epoch * count : (epoch + 1) * count]) == wanted, (corpus, epoch)


@pytest.mark.parametrize(("count", "before", "after"), [(120, 4, 13), (120, 8, 1), (5, 8, 3), (60, 1, 64)])
def test_another_batch_size_goes_on_with_the_rest_of_the_epoch(tmp_path, count, before, after):
    config = make_config(write_jsonl(tmp_path, TEXTS[:count]), batch_size=before, eval_share=0.0)
    (first,) = make_batches(config)
    wanted = pieces(TEXTS[:count], 64)
    found = segments(take(first, 3))
    (later,) = make_batches(dataclasses.replace(config, batch_size=after))
    later.set_state(first.get_state(), 3)
    while later.epoch() < 3:
        found += segments(take(later, 1))
    for epoch in range(3):
        assert sorted(found[epoch * len(wanted) : (epoch + 1) * len(wanted)]) == sorted(wanted)


@pytest.mark.parametrize("consumed", [0, 1, 5, 70])  # 70 batches are the data twice and more
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
    for data in pair:
        states = data.get_state()
        assert states == alone.get_state() == four[0].get_state() == four[3].get_state()
    with orbax.checkpoint.CheckpointManager(tmp_path / "checkpoints") as manager:
        manager.save(1, args=orbax.checkpoint.args.Composite(data=orbax.checkpoint.args.JsonSave(states)))
        states = manager.restore(1)["data"]
    whole = take(alone, 10)
    for processes, shared in (1, 1), (2, 1), (2, 2), (4, 1), (4, 2):
        job = make_batches(config, processes, shared)
        for data in job:
            data.set_state(states, consumed)
        for expected in whole:
            parts = [next(data) for data in job][::shared]
            assert equal({name: np.concatenate([part[name] for part in parts]) for name in expected}, expected)


def test_other_data_is_refused_unless_it_is_allowed(tmp_path, capsys):
    """Refuses added, removed and changed files, not moved ones."""
    config = make_config(write_jsonl(tmp_path / "a"))
    states = make_batches(config)[0].get_state()
    moved = dataclasses.replace(config, data=write_jsonl(tmp_path / "moved"))
    make_batches(moved)[0].set_state(states, 7)
    write_jsonl(tmp_path / "more")
    (tmp_path / "more/b.jsonl").write_text('{"text": "more"}')
    for data in write_jsonl(tmp_path / "less", TEXTS[1:]), str(tmp_path / "more"):
        other = dataclasses.replace(config, data=data)
        with pytest.raises(InputError, match=r"not what this run had up to 7: .*or --allow-other-data"):
            make_batches(other)[0].set_state(states, 7)
        make_batches(dataclasses.replace(other, allow_other_data=True))[0].set_state(states, 7)
        assert f"warning: --data {data}" in capsys.readouterr().err


def test_sequences_of_another_length_lose_no_document(tmp_path):
    """Those that were begun are read again."""
    config = make_config(write_jsonl(tmp_path), eval_share=0.0)
    (first,) = make_batches(config)
    found = {bytes(tokens[1:]) for tokens, _ in segments(take(first, 20)) if tokens[0] == 256}
    (later,) = make_batches(dataclasses.replace(config, sequence_length=512))
    later.set_state(first.get_state(), 20)
    while later.epoch() < 1:
        found |= {bytes(tokens[1:])[:63] for tokens, _ in segments(take(later, 1))}
    assert found == {text.encode()[:63] for text in TEXTS}


def test_few_sequences_wait_and_none_forever(monkeypatch):
    monkeypatch.undo()
    (data,) = make_batches(dataclasses.replace(PRESETS["tiny"], batch_size=8))
    take(data, 300)
    waiting = data.get_state()["sequences"]["waiting"]
    assert len(waiting) == pipeline.PACKING_BINS <= 32
    begun = data.get_state()["sequences"]["next"][0]  # number of the next document
    assert begun and min(places[0][0] for places in waiting) > 0


def test_a_resumed_run_opens_its_data_once_and_keeps_its_order(tmp_path, monkeypatch, capsys):
    config = make_config(write_jsonl(tmp_path))
    read = mock.Mock(wraps=pipeline.open_pieces)
    monkeypatch.setattr(pipeline, "open_pieces", read)
    (data,) = make_batches(config)
    data.set_state(data.get_state() | {"seed": 7}, 3)
    assert read.call_count == 1 and data.seed == 7
    assert f"--seed {config.seed}: the order of data stays that of 7" in capsys.readouterr().err


def test_processes_share_the_documents(tmp_path):
    config = make_config(write_jsonl(tmp_path))
    trained = TEXTS[:-3]
    batches = take(*make_batches(config), 120)
    assert batches[0]["tokens"].shape == (4, 64)
    found = segments(batches)
    assert {json.dumps(segment) for segment in found} == {json.dumps(segment) for segment in pieces(trained, 64)}


def test_evaluation_is_the_same_over_any_processes(tmp_path):
    config = make_config(write_jsonl(tmp_path), eval_share=0.3, eval_batches=100)
    whole = evaluation(config)
    assert sorted(segments(whole)) == sorted(pieces(TEXTS[-36:], 64))
    parts = [held_out_batches(config, rows) for rows in ([0], [1, 2], [3])]
    for batches, batch in zip(zip(*parts, strict=False), whole, strict=False):
        assert equal({name: np.concatenate([b[name] for b in batches]) for name in batch}, batch)


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
    assert trained(half) == set(range(60))
    assert sorted(segments(evaluation(half))) == sorted(pieces(TEXTS[60:], 64))


def test_of_many_documents_ten_thousand_are_held_out(tmp_path):
    data = write_jsonl(tmp_path, [str(i) for i in range(20_010)])
    assert len(open_source(make_config(data, eval_share=0.5), "eval")) == 10_000


@pytest.mark.parametrize(
    ("sizes", "share", "held_out"),
    [([3] * 40, 0.1, 12), ([3] * 40, 0.02, 3), ([1] * 100, 0.1, 10), ([100], 0.02, 2), ([9, 1, 90], 0.1, 10)],
)
def test_whole_files_are_held_out_or_the_end_of_a_long_one(tmp_path, sizes, share, held_out):
    """Of texts of so many pieces; the last ones in the order of their names."""
    for i, size in enumerate(sizes):
        (tmp_path / f"{i:03}.txt").write_text(f"file {i:04}\n" * (size * 6500 - 100))
    config = make_config(str(tmp_path), eval_share=share)
    train, held = (
        [source[i] for i in range(len(source))] for source in (open_source(config, x) for x in ("train", "eval"))
    )
    assert len(held) == held_out and len(train) == sum(sizes) - held_out
    names = [{bytes(pieces[1]["tokens"].tolist()).split(b"file ")[1][:4] for pieces in x} for x in (train, held)]
    assert len(sizes) in (1, 3) or not names[0] & names[1]
    assert max(names[0]) <= min(names[1])


def test_threads_do_not_grow_with_rows():
    counts = []
    for rows in 8, 256:
        (data,) = make_batches(dataclasses.replace(PRESETS["tiny"], batch_size=rows, sequence_length=32))
        before = {*threading.enumerate()}
        next(data)
        counts.append(len({*threading.enumerate()} - before))
    assert counts[1] <= counts[0] <= 20
