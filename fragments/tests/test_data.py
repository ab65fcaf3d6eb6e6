"""From files to batches, against the documents themselves."""

import collections
import dataclasses
import importlib
import itertools
import json
import math
import types

import jax
import numpy as np
import orbax.checkpoint
import pytest

from generator.language import requires
from generator.language.roles import (
    PRESETS,
    TEXTS,
    Batches,
    InputError,
    Rows,
    held_out_batches,
    make_datasets,
    open_documents,
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


@dataclasses.dataclass(frozen=True)
class Device:
    process_index: int


def make_batches(config, processes: int = 1, rows_shared_by: int = 1) -> list[Batches]:
    """Makes the batches of each process, where so many consecutive ones hold the same rows."""
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
            assert [n for n, _ in runs if n] == list(range(1, ids.max() + 1))  # each segment is contiguous
            assert 0 not in [n for n, _ in runs[:-1]]  # padding comes last
            assert positions.tolist() == [p for n, size in runs for p in (range(size) if n else [0] * size)]


def test_training_goes_through_all_documents_in_another_order_each_epoch(tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "PACKING_BINS", 1)  # sequences then come in the order of the documents
    config = make_config(write_jsonl(tmp_path), batch_size=1)
    trained = [text for i, text in enumerate(TEXTS) if i % 50]

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


def test_other_data_is_refused_unless_it_is_allowed(tmp_path, capsys):
    """Refuses added, removed and changed files, not moved ones."""
    config = make_config(write_jsonl(tmp_path / "a"))
    states = make_batches(config)[0].get_state()
    moved = dataclasses.replace(config, data=write_jsonl(tmp_path / "moved"))
    make_batches(moved)[0].set_state(states, 7)
    write_jsonl(tmp_path / "more")
    (tmp_path / "more/b.txt").write_text("more")
    for data in write_jsonl(tmp_path / "less", TEXTS[1:]), str(tmp_path / "more"):
        other = dataclasses.replace(config, data=data)
        with pytest.raises(InputError, match=r"not what this run had up to 7: .*or --allow-other-data"):
            make_batches(other)[0].set_state(states, 7)
        make_batches(dataclasses.replace(other, allow_other_data=True))[0].set_state(states, 7)
        assert f"warning: --data {data}" in capsys.readouterr().err


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


def test_the_first_batch_reads_what_it_needs(monkeypatch):
    """Reads up to the first piece that does not fit; later, too, few sequences wait, and none forever."""
    monkeypatch.undo()
    (data,) = make_batches(dataclasses.replace(PRESETS["tiny"], batch_size=8))
    take(data, 1)
    for state in data.get_state().values():
        assert [len(sequence) for sequence in state["stream"]["waiting"]] == [1]
    take(data, 299)
    for state in data.get_state().values():
        waiting = state["stream"]["waiting"]
        assert len(waiting) == pipeline.PACKING_BINS <= 16
        begun = state["stream"]["next"][0]  # number of the next document
        assert begun and min(sequence[0][0] for sequence in waiting) > 0


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


def test_of_many_documents_ten_thousand_are_held_out(tmp_path):
    data = write_jsonl(tmp_path, [str(i) for i in range(20_010)])
    assert len(make_datasets(make_config(data, eval_share=0.5), "eval")[0].order) == 10_000
