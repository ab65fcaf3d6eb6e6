"""Prepared data: the tokens of each document as a record of ArrayRecord files."""

import functools
import json
import os
from pathlib import Path
from typing import Any

import grain
import numpy as np
from array_record.python.array_record_module import ArrayRecordReader

from generator.language import point, proceed, splice
from generator.language.roles import AnyTokenizer, InputError, allow_open_files, identity


def token_type(tokenizer: AnyTokenizer) -> str:
    return "<u2" if tokenizer.vocab_size <= 2**16 else "<u4"


def read_description(data: str) -> dict[str, Any] | None:
    """Reads prepared.json: source, tokenizer and, once complete, documents by file. None if there is none."""
    path = Path(os.path.expanduser(data)) / "prepared.json"
    if not path.is_file():
        return None
    try:
        description = json.loads(path.read_text())
        return description | {"shards": {name: int(count) for name, count in description["shards"].items()}}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: is damaged: {error!r}: prepare the data again, in a new folder") from None


@functools.cache  # training and evaluation share it
def open_shard(path: Path, count: int) -> ArrayRecordReader:
    reader = ArrayRecordReader(str(path), "readahead_buffer_size:0,max_parallelism:0")
    if not reader.ok() or reader.num_records() != count:
        raise InputError(f"{path}: is damaged: remove it, and start `data prepare` again, which writes it anew")
    return reader


def open_prepared(data: str, shards: dict[str, int], dtype: str) -> grain.MapDataset:
    """Returns the tokens of each document, int32 [n]; opens a file when it is first read."""
    point("open_prepared.start", data, dtype)
    folder = Path(os.path.expanduser(data))
    missing = sorted(shards.keys() - set(os.listdir(folder)))
    if missing or not shards:
        problem = f"{missing[0]} is missing" if missing else "it is not whole"
        raise InputError(f"data {data}: {problem}: start `data prepare` again, which goes on with it")
    allow_open_files()  # all of these stay open
    names, counts = list(shards), list(shards.values())
    ends = np.cumsum(counts)

    def read(i: int) -> np.ndarray:
        number = int(np.searchsorted(ends, i, "right"))
        at = int(i - ends[number]) + counts[number]
        reader = open_shard(folder / names[number], counts[number])
        try:
            # a range: Grain's source asks for a list of one, which is slower the more records a file has
            (record,) = reader.read(at, at + 1)
        except RuntimeError as error:
            problem = f"{folder / names[number]}: {error}: remove it, and start `data prepare` again"
            raise InputError(problem) if "Corrupted" in str(error) else OSError(problem) from None
        with point("open_prepared.tokens", record, dtype):
            tokens = np.frombuffer(record, dtype).astype(np.int32)
        return tokens

    return grain.MapDataset.range(ends[-1]).map(read)


def open_tokens(data: str, tokenizer: AnyTokenizer) -> grain.MapDataset | None:
    """Returns the tokens of each document of prepared data, None for other data."""
    description = read_description(data)
    if not description:
        return None
    if description.get("tokenizer") != identity(tokenizer):
        raise InputError(
            f"data {data}: its tokenizer is {description.get('tokenizer')}, and --tokenizer is {identity(tokenizer)}: "
            "give the first, or prepare the data with the second"
        )
    point("open_tokens.checked", data, description)
    return open_prepared(data, description["shards"], token_type(tokenizer))


@splice("find_files.found")
def _(data, files):
    if prepared := [file.parent for file in files if file.name == "prepared.json"]:
        raise InputError(f"data {data}: {prepared[0]} is prepared data: give that by itself, to train")


@splice("open_pieces.documents")
def _(config, path, tokenizer, texts, counts, documents):
    texts = []
    counts = []
    documents = open_tokens(path, tokenizer)
    if documents is None:
        proceed()
