"""Documents of JSON, CSV, Parquet, Arrow and ArrayRecord files, and of compressed ones."""

import array
import bz2
import collections
import csv
import functools
import gzip
import io
import json
import lzma
import os
import re
import shutil
import tempfile
import threading
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

import grain
import numpy as np

from generator.language import point, splice
from generator.language.roles import (
    NO_DATA,
    Content,
    Documents,
    InputError,
    OpenFile,
    allow_open_files,
    as_text,
    open_file,
    open_jsonl,
    open_text,
)


def import_pyarrow(path: Path) -> ModuleType:
    try:
        import pyarrow.ipc
        import pyarrow.parquet  # not needed for the other formats

        return pyarrow
    except ImportError:
        raise InputError(f"{path}: needs pyarrow: pip install pyarrow") from None


def open_zst(path: Path) -> BinaryIO:
    return import_pyarrow(path).input_stream(str(path), compression="zstd")


COMPRESSED = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": open_zst}


def unpack(path: Path) -> OpenFile | None:
    """Unpacks a compressed file to an unnamed temporary file; returns None for any other."""
    open_compressed = COMPRESSED.get(path.suffix.lower())
    if open_compressed is None:
        return None
    try:
        with open_compressed(path) as file, tempfile.TemporaryFile() as to:
            shutil.copyfileobj(file, to, 2**20)
            to.flush()
            return OpenFile(os.dup(to.fileno()))
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno:  # such as no room in the temporary folder
            raise
        raise InputError(f"{path}: cannot be unpacked: {error}: fetch it again, or leave it out") from None


def open_json(content: Content, field: str) -> Documents:
    """Reads a list of objects or strings, which stays in memory; reads anything else as JSONL."""
    if not content.read(0, min(content.size, 4096)).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        return open_jsonl(content, field)
    try:
        with point("open_json.rows", content, field):
            rows = [row if isinstance(row, str) else row[field] for row in json.loads(content.read(0, content.size))]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise InputError(
            f"{content.path}: must be a list of objects with a field {field}: {type(error).__name__}: {error}: "
            "fix it, leave it out, or give another --text-field"
        ) from None
    texts = [row for row in rows if row is not None]
    return Documents(len(texts), lambda i: as_text(texts[i], f"{content.path}: text {i}"), len(rows) - len(texts))


def check_column(names: list[str], field: str) -> None:
    if (count := names.count(field)) != 1:
        raise ValueError(f"it has {count or 'no'} columns of that name")


def open_csv(content: Content, field: str, delimiter: str = ",") -> Documents:
    """Reads the file once to find its rows; the first one names the columns."""
    csv.field_size_limit(2**31 - 1)
    end = 0

    def lines() -> Iterator[str]:
        nonlocal end
        for line in content.lines():
            text = line.decode() if end else line.decode("utf-8-sig")
            end += len(line)
            yield text

    rows = csv.reader(lines(), delimiter=delimiter, strict=True)
    bounds = array.array("q")
    left_out = 0
    try:
        names = next(rows, [])
        check_column(names, field)
        column = names.index(field)
        start = end
        for row in rows:
            if row and len(row) != len(names):
                raise ValueError(f"{len(row)} cells, and the first line has {len(names)}")
            if row and row[column]:
                bounds.extend((start, end))
            start = end
            left_out += bool(row and not row[column])
    except (ValueError, csv.Error) as error:  # no such column, no UTF-8
        raise InputError(
            f"{content.path}:{rows.line_num}: must be CSV with a column {field}: {error}: "
            "fix it, leave it out, or give another --text-field"
        ) from None

    def read(i: int) -> str:
        row = content.read(*bounds[2 * i : 2 * i + 2]).decode()
        return as_text(next(csv.reader(io.StringIO(row, newline=""), delimiter=delimiter))[column], str(content.path))

    return Documents(len(bounds) // 2, read, left_out)


@functools.lru_cache(maxsize=16)
def read_row_group(path: Path, group: int, field: str) -> Sequence:
    """Returns the texts of a row group of Parquet; the last few groups stay in memory."""
    with import_pyarrow(path).parquet.ParquetFile(path) as file:
        with point("read_row_group.texts", file, group, field):
            texts = file.read_row_group(group, columns=[field])[field].drop_null()
        return texts


READING = threading.Lock()  # keeps threads from reading a row group several times


def open_parquet(content: Content, field: str) -> Documents:
    path = content.path
    pyarrow = import_pyarrow(content.path)
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            with point("open_parquet.field", field, schema=file.schema_arrow):
                check_column(file.schema_arrow.names, field)
            groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
        counts = []
        for number, group in enumerate(groups):
            columns = (group.column(i) for i in range(group.num_columns))
            known = next((x.statistics for x in columns if x.path_in_schema == field), None)
            is_known = known is not None and known.has_null_count
            counts.append(group.num_rows - known.null_count if is_known else len(read_row_group(path, number, field)))
    except (pyarrow.ArrowException, ValueError, OSError) as error:
        raise InputError(
            f"{path}: must be Parquet with a column {field}: {error}: "
            "fix it, leave it out, or give another --text-field"
        ) from None
    ends = np.cumsum(counts)

    def read(i: int) -> str:
        group = int(np.searchsorted(ends, i, "right"))
        try:
            with READING:
                rows = read_row_group(path, group, field)
            return as_text(rows[i - ends[group]].as_py(), f"{path}: row {i}")
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            if isinstance(error, OSError) and error.errno:
                raise
            raise InputError(f"{path}: row {i}: {error}: fetch the file again, or leave it out") from None

    return Documents(sum(counts), read, sum(group.num_rows for group in groups) - sum(counts))


def open_arrow(content: Content, field: str) -> Documents:
    """Maps a file or stream of record batches into memory, as `save_to_disk` of datasets writes."""
    path = content.path
    pyarrow = import_pyarrow(content.path)
    try:
        is_file = content.read(0, min(content.size, 6)) == b"ARROW1"
        open_batches = pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream
        table = open_batches(pyarrow.memory_map(str(path))).read_all()
        with point("open_arrow.column", table, field):
            check_column(table.column_names, field)
            column = table.column(field)
        column.validate(full=True)  # bad offsets in a damaged file would end the process
    except (pyarrow.ArrowException, ValueError, OSError) as error:
        raise InputError(
            f"{path}: must be Arrow with a column {field}: {error}: fix it, leave it out, or give another --text-field"
        ) from None
    rows = np.flatnonzero(column.is_valid()) if column.null_count else range(len(column))
    return Documents(len(rows), lambda i: as_text(column[int(rows[i])].as_py(), f"{path}: row {i}"), column.null_count)


def open_array_record(content: Content, _: str) -> Documents:
    path = content.path
    try:
        records = grain.sources.ArrayRecordDataSource(str(path))
    except RuntimeError as error:
        raise InputError(f"{path}: must be an ArrayRecord file: {error}") from None
    return Documents(len(records), lambda i: as_text(records[i], f"{path}: record {i}"))


FORMATS = {
    ".jsonl": open_jsonl,
    ".ndjson": open_jsonl,
    ".json": open_json,
    ".csv": open_csv,
    ".tsv": functools.partial(open_csv, delimiter="\t"),
    ".parquet": open_parquet,
    ".arrow": open_arrow,
    ".array_record": open_array_record,
}


@splice("Content.parameters")
def _(self, path):
    self.unpacked = unpack(path)


@splice("Content.opened")
def _(self, file):
    file = self.unpacked or open_file(self.path)


def format_of(path: Path) -> str:
    """Returns the suffix of a format, without the number of a shard and compression: "" if there is none."""
    name = re.sub("([.-][0-9]+(-of-[0-9]+)?|[.](gz|bz2|xz|zst))*$", "", path.name.lower())
    return max((suffix for suffix in FORMATS if name.endswith(suffix)), default="").replace("ndjson", "jsonl")


@splice("of_one_format.chosen")
def _(files, chosen, kept):
    bytes_by_format = collections.Counter(dict.fromkeys(["", *FORMATS], 0))
    for path in files:
        if not NO_DATA.fullmatch(path.name):
            bytes_by_format[format_of(path)] += path.stat().st_size + 1  # an empty file has a format too
    rows = ".jsonl", ".parquet", ".arrow", ".array_record"  # come before what may be notes or settings
    chosen = max(
        bytes_by_format, key=lambda suffix: (suffix in rows and bytes_by_format[suffix] > 0, bytes_by_format[suffix])
    )
    kept = [x for x in files if format_of(x) == chosen and not NO_DATA.fullmatch(x.name)]
    chosen = chosen or "text"


@splice("open_by_format.format")
def _(content, path, field, documents):
    suffix = format_of(path)
    if content.unpacked and suffix in (".parquet", ".arrow", ".array_record"):
        raise InputError(f"{path}: unpack it: it would be read in no order")
    documents = FORMATS[suffix](content, field) if suffix else open_text(content)


@splice("open_files.start")
def _():
    read_row_group.cache_clear()
    allow_open_files()  # unpacked files stay open
