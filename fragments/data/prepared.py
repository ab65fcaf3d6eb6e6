"""Prepared data: the tokens of each document as a record of ArrayRecord files; and sources by their weights."""

import collections
import contextlib
import functools
import json
import os
import re
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grain
import numpy as np
from array_record.python.array_record_module import ArrayRecordReader

from generator.language.roles import (
    ByteTokenizer,
    FileTokenizer,
    InputError,
    encode_document,
    find_files,
    open_documents,
)


def split_mixture(data: str) -> list[tuple[float, str]]:
    """The weight and the path of each source: of "0.7:A,0.3:B", or of a path alone."""
    parts = [part.partition(":") for part in re.split(r",(?=[^,:/]*:(?!//))", data)]
    try:
        found = [(float(weight), path) for weight, _, path in parts]
    except ValueError:  # a path
        return [(1.0, data)]
    if not all(1e-6 <= weight <= 1e6 and path for weight, path in found):
        raise InputError(f"data {data}: must be WEIGHT:PATH,WEIGHT:PATH, weights from 0.000001 to 1,000,000")
    return found


def identity(tokenizer: ByteTokenizer | FileTokenizer) -> dict[str, Any]:
    names = {name: getattr(tokenizer, name) for name in ("digest", "vocab_size", "eos", "parses_special")}
    return names | {"prefix": list(tokenizer.prefix)}


def token_type(tokenizer: ByteTokenizer | FileTokenizer) -> str:
    return "<u2" if tokenizer.vocab_size <= 2**16 else "<u4"


def read_description(data: str) -> dict[str, Any] | None:
    """Of a folder of prepared data: its source, its tokenizer, and once it is whole its files and their documents."""
    path = Path(os.path.expanduser(data)) / "prepared.json"
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text())
        return found | {"shards": {name: int(count) for name, count in found["shards"].items()}}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: is damaged: {error!r}: prepare the data again, in a new folder") from None


@functools.cache  # training and evaluation share it
def open_shard(path: Path, count: int) -> ArrayRecordReader:
    reader = ArrayRecordReader(str(path), "readahead_buffer_size:0,max_parallelism:0")
    if not reader.ok() or reader.num_records() != count:
        raise InputError(f"{path}: is damaged: remove it, and start `data prepare` again, which writes it anew")
    return reader


def open_prepared(data: str, shards: dict[str, int], dtype: str) -> grain.MapDataset:
    """The tokens of each document, int32 [n]; a file is opened where the first of its documents is read."""
    folder = Path(os.path.expanduser(data))
    missing = sorted(shards.keys() - set(os.listdir(folder)))
    if missing or not shards:
        problem = f"{missing[0]} is missing" if missing else "it is not whole"
        raise InputError(f"data {data}: {problem}: start `data prepare` again, which goes on with it")
    with contextlib.suppress(ValueError):  # all files stay open
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    names, counts = list(shards), list(shards.values())
    ends = np.cumsum(counts)

    def read(i: int) -> np.ndarray:
        number = int(np.searchsorted(ends, i, "right"))
        at = int(i - ends[number]) + counts[number]
        reader = open_shard(folder / names[number], counts[number])
        try:
            # a range, where Grain's source asks for a list of one, which takes longer the more records a file has
            (record,) = reader.read(at, at + 1)
        except RuntimeError as error:
            problem = f"{folder / names[number]}: {error}: remove it, and start `data prepare` again"
            raise InputError(problem) if "Corrupted" in str(error) else OSError(problem) from None
        return np.frombuffer(record, dtype).astype(np.int32)

    return grain.MapDataset.range(ends[-1]).map(read)


def special_texts(tokenizer: ByteTokenizer | FileTokenizer) -> re.Pattern[str]:
    """Find special tokens which stay text in documents."""
    names = () if tokenizer.parses_special or tokenizer.digest == "bytes" else tokenizer.special.values()
    return re.compile("|".join(map(re.escape, names)) or "(?!)")


def count_special(tokenizer: ByteTokenizer | FileTokenizer, documents: Sequence[str]) -> collections.Counter[str]:
    """Count the documents which hold the text of a special token, of the first 100."""
    texts, names = (documents[i] for i in range(min(len(documents), 100))), special_texts(tokenizer)
    return collections.Counter(name for text in texts for name in set(names.findall(text)))


def warn_of_special_tokens(data: str, which: str, found: collections.Counter[str]) -> None:
    """Say how many of which documents hold the text of special tokens, which was likely meant as tokens."""
    if found:
        most = ", ".join(f"{name} in {count}" for name, count in found.most_common(3))
        problem = f"of {which} documents: {most}; there they are text: --special-tokens makes them tokens"
        print(f"warning: data {data}: special tokens in documents: {problem}", file=sys.stderr)


def open_tokens(data: str, tokenizer: ByteTokenizer | FileTokenizer, field: str = "text") -> grain.MapDataset:
    """The tokens of each document of a source, after what the tokenizer begins a text with, and eos: int32 [n]."""
    description = read_description(data)
    if not description:
        return open_documents(data, field).map(lambda text: encode_document(tokenizer, text))
    if description.get("tokenizer") != identity(tokenizer):
        problem = f"its tokenizer is {description.get('tokenizer')}, and --tokenizer is {identity(tokenizer)}"
        raise InputError(f"data {data}: {problem}: give the first, or prepare the data with the second")
    return open_prepared(data, description["shards"], token_type(tokenizer))


def fingerprint(data: str) -> list[Any]:
    """The same for the same data, wherever it is: descriptions of what is prepared, names and sizes of other files."""
    paths = [path for _, path in split_mixture(data)]
    return [read_description(path) or [[file.name, file.stat().st_size] for file in find_files(path)] for path in paths]
