"""Batches of a package without packing: a sequence holds one document, or a piece of one, and padding."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import json
import sys

import numpy as np
import pytest

from families.weaving import LIBRARY, write
from generator.weaver import weave

LENGTH = 16


@pytest.fixture
def batches(tmp_path, monkeypatch):
    folder = write(weave("llama2", "cpu", LIBRARY, without=["data/packing"]), tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == folder.name]:  # of other tests
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(folder.parent))
    data = importlib.import_module(f"{folder.name}.data")
    config = importlib.import_module(f"{folder.name}.config").PRESETS["tiny"]
    documents = [chr(ord("a") + i % 26) * (1 + 7 * i % 29) for i in range(100)]
    lines = [json.dumps({"text": document}) for document in documents]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    path = str(tmp_path / "data.jsonl")
    return documents, data, dataclasses.replace(config, data=path, sequence_length=LENGTH, batch_size=2)


def test_each_row_is_one_piece(batches):
    documents, data, config = batches
    tokenizer = data.load_tokenizer("bytes")
    held_out = [[tokenizer.bos, *tokenizer.encode(document), tokenizer.eos] for document in documents[-2:]]
    pieces = [[tokens[i : i + LENGTH + 1] for i in range(0, len(tokens) - 1, LENGTH)] for tokens in held_out]
    wanted = [piece for batch in zip(*pieces, strict=True) for piece in batch]  # each row has its own document
    rows = [
        {name: values[row] for name, values in batch.items()}
        for batch in data.held_out_batches(config, [0, 1])
        for row in range(2)
    ]
    assert len(rows) == len(wanted) + len(wanted) % 2
    for row, piece in itertools.zip_longest(rows, wanted, fillvalue=[0]):  # the last batch is padded to a whole one
        used = len(piece) - 1
        rest = [0] * (LENGTH - used)
        np.testing.assert_array_equal(row["tokens"], [*piece[:-1], *rest])
        np.testing.assert_array_equal(row["targets"], [*piece[1:], *rest])
        np.testing.assert_array_equal(row["positions"], [*range(used), *rest])
        for name in "segment_ids", "weights":
            np.testing.assert_array_equal(row[name], [1] * used + rest)


def test_training_never_ends(batches):
    _, data, config = batches
    sequences = data.Sequences(data.repeat(data.open_source(config, "train"), 0), LENGTH)
    packed = list(itertools.islice(sequences, 200))  # more than there are
    assert [len(pieces) for pieces in packed] == [1] * 200
