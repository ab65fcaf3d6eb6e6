"""Indices of JSONL files, kept beside a run."""

import dataclasses
import os
import sys
from unittest import mock

import jax
import pytest

from generator.language import requires
from generator.language.roles import (
    PRESETS,
    TEXTS,
    InputError,
    held_out_batches,
    index_files,
    index_path,
    open_documents,
    write_jsonl,
)

requires("documents/jsonl_index")

formats = sys.modules[index_path.__module__]


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "INDEX_FOLDERS", [tmp_path / "index"])
    open_documents.cache_clear()
    yield tmp_path / "index"
    open_documents.cache_clear()


def read_all(data: str) -> list[str]:
    open_documents.cache_clear()
    found, _ = open_documents(data, "text")
    return [found[i] for i in range(len(found))]


def test_a_file_is_indexed_once_until_it_changes(kept, tmp_path, monkeypatch):
    data = write_jsonl(tmp_path / "data")
    assert read_all(data) == TEXTS and len([*kept.iterdir()]) == 1
    with monkeypatch.context() as patch:
        patch.setattr(formats.Content, "lines", lambda self: pytest.fail("is read again"))
        assert read_all(data) == TEXTS
    write_jsonl(tmp_path / "data", TEXTS[::-1])
    os.utime(data, (1, 1))
    assert read_all(data) == TEXTS[::-1] and len([*kept.iterdir()]) == 2
    for path in kept.iterdir():
        path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match=r"index/\w+\.npy: is damaged"):
        read_all(data)


def test_processes_index_a_share_each(kept, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    for i in range(5):
        write_jsonl(tmp_path / f"data/{i}", [f"{i} {text}" for text in TEXTS[:9]])
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    for process, count in (0, 3), (1, 5):
        monkeypatch.setattr(jax, "process_index", lambda process=process: process)
        index_files([str(tmp_path / "data")], "text")
        assert len([*kept.iterdir()]) == count
    monkeypatch.setattr(formats.Content, "lines", lambda self: pytest.fail("is read again"))
    assert len(read_all(str(tmp_path / "data"))) == 45


def test_evaluation_reads_its_own_rows(tmp_path, monkeypatch):
    """Of one of two processes; as many batches in each."""
    as_text = mock.Mock(wraps=formats.as_text)
    monkeypatch.setattr(formats, "as_text", as_text)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    fields = dict(data=write_jsonl(tmp_path), eval_share=0.5, sequence_length=64, batch_size=4, eval_batches=40)
    batches = held_out_batches(dataclasses.replace(PRESETS["tiny"], **fields), [1])
    # the first one says which arrays there are
    assert {call.args[0] for call in as_text.call_args_list} == {TEXTS[60], *TEXTS[61::4]}
    assert len(batches) == 40 and batches[0]["weights"].any() and not batches[-1]["weights"].any()
