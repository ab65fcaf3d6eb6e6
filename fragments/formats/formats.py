"""Documents of a file, by its format: text, JSONL, JSON, CSV, Parquet, Arrow or ArrayRecord, compressed or not."""

import array
import bz2
import csv
import functools
import gzip
import io
import itertools
import json
import lzma
import os
import re
import shutil
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, NamedTuple

import grain
import numpy as np

from generator.language.roles import InputError

TEXT_BYTES = 65_536  # about the longest document from a plain text file


class Documents(NamedTuple):
    """The documents of a file."""

    count: int
    read: Callable[[int], str]
    left_out: int = 0  # rows whose text is null


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


class OpenFile(io.FileIO):
    __del__ = io.FileIO.close  # when it has left the cache, and nobody holds it


open_file = functools.lru_cache(maxsize=256)(OpenFile)


class Content:
    """The bytes of a file; of a compressed one, of a temporary file without a name, which it is unpacked to."""

    def __init__(self, path: Path):
        self.path, self.unpacked = path, None
        if unpack := COMPRESSED.get(path.suffix.lower()):
            try:
                with unpack(path) as file, tempfile.TemporaryFile() as to:
                    shutil.copyfileobj(file, to, 2**20)
                    to.flush()
                    self.unpacked = OpenFile(os.dup(to.fileno()))
            except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
                if isinstance(error, OSError) and error.errno:  # no room in the temporary folder, say
                    raise
                raise InputError(f"{path}: cannot be unpacked: {error}: fetch it again, or leave it out") from None
        self.size = self.opened().seek(0, io.SEEK_END)

    def opened(self) -> OpenFile:
        return self.unpacked or open_file(self.path)

    def read(self, start: int, stop: int) -> bytes:
        held = self.opened()  # as another thread may drive it out of the cache
        content = os.pread(held.fileno(), stop - start, start)
        if len(content) < stop - start:
            raise InputError(
                f"{self.path}: has been cut to {start + len(content)} bytes since the run began: start again"
            )
        return content

    def lines(self) -> Iterator[bytes]:
        held = self.opened()
        with open(os.dup(held.fileno()), "rb") as file:
            file.seek(0)
            yield from file


def as_text(value: object, source: str) -> str:
    """A document from what its file holds: a string, or UTF-8. `source` says in an error where it is from."""
    try:
        value = value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError as error:
        raise InputError(f"{source}: byte {error.start} is not UTF-8: convert it to UTF-8, or leave it out") from None
    if not isinstance(value, str):
        raise InputError(f"{source}: the text is {value!r}, not a string: fix it, or leave it out")
    # half a surrogate pair, which JSON can hold and UTF-8 cannot, becomes U+FFFD
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def open_text(content: Content, field: str) -> Documents:
    path, size = content.path, content.size
    if b"\0" in content.read(0, min(size, 8192)):  # as git recognises binary files
        raise InputError(f"{path}: neither text nor a file type that is known: unpack it, or choose: 'DIR/**/*.txt'")
    count = -(-size // TEXT_BYTES)
    bounds = {0, size}
    for offset in (size * i // count for i in range(1, count)):
        window = content.read(offset, min(size, offset + 4096))
        characters = (i for i, byte in enumerate(window) if byte & 0xC0 != 0x80)  # where a character of UTF-8 begins
        bounds.add(offset + (window.find(b"\n") + 1 or next(characters, 0)))
    pieces = list(itertools.pairwise(sorted(bounds)))
    return Documents(len(pieces), lambda i: as_text(content.read(*pieces[i]), f"{path} from byte {pieces[i][0]}"))


def open_jsonl(content: Content, field: str) -> Documents:
    """Reads the file once to find its lines; leaves blank ones out."""

    def get(line: bytes, source: str) -> Any:
        try:
            return json.loads(line)[field]
        except (ValueError, RecursionError, KeyError, TypeError) as error:  # no JSON, no field text, no object
            problem = f"{source}: must be JSON with a field {field}: {type(error).__name__}: {error}"
            raise InputError(f"{problem}: fix it, leave it out, or give another --text-field") from None

    spellings = {json.dumps(field), json.dumps(field, ensure_ascii=False)}
    null = re.compile(rb"(?:%b)\s*:\s*null\b" % "|".join(map(re.escape, spellings)).encode())
    lengths, kept, left_out = array.array("q"), array.array("q"), 0
    for number, line in enumerate(content.lines()):
        lengths.append(len(line))
        if null.search(line) and get(line, f"{content.path}:{number + 1}") is None:
            left_out += 1
        elif line not in (b"\n", b"\r\n"):
            kept.append(number)
    ends = np.cumsum(np.array(lengths, np.int64))

    def read(i: int) -> str:
        line, source = kept[i], f"{content.path}:{kept[i] + 1}"
        return as_text(get(content.read(ends[line] - lengths[line], ends[line]), source), source)

    return Documents(len(kept), read, left_out)


def open_json(content: Content, field: str) -> Documents:
    """A list of objects, or of strings, which is kept in memory; anything else is read as JSONL."""
    if not content.read(0, min(content.size, 4096)).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        return open_jsonl(content, field)
    try:
        rows = [row if isinstance(row, str) else row[field] for row in json.loads(content.read(0, content.size))]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        problem = f"{content.path}: must be a list of objects with a field {field}: {type(error).__name__}: {error}"
        raise InputError(f"{problem}: fix it, leave it out, or give another --text-field") from None
    texts = [row for row in rows if row is not None]
    return Documents(len(texts), lambda i: as_text(texts[i], f"{content.path}: text {i}"), len(rows) - len(texts))


def check_column(names: list[str], field: str) -> None:
    if (count := names.count(field)) != 1:
        raise ValueError(f"it has {count or 'no'} columns of that name")


def open_csv(content: Content, field: str, delimiter: str = ",") -> Documents:
    """Reads the file once to find its rows, of which the first one names the columns."""
    csv.field_size_limit(2**31 - 1)
    end = 0

    def lines() -> Iterator[str]:
        nonlocal end
        for line in content.lines():
            text = line.decode() if end else line.decode("utf-8-sig")
            end += len(line)
            yield text

    rows = csv.reader(lines(), delimiter=delimiter, strict=True)
    bounds, left_out = array.array("q"), 0
    try:
        names = next(rows, [])
        check_column(names, field)
        column, start = names.index(field), end
        for row in rows:
            if row and len(row) != len(names):
                raise ValueError(f"{len(row)} cells, and the first line has {len(names)}")
            if row and row[column]:
                bounds.extend((start, end))
            start, left_out = end, left_out + bool(row and not row[column])
    except (ValueError, csv.Error) as error:  # no such column, no UTF-8
        problem = f"{content.path}:{rows.line_num}: must be CSV with a column {field}: {error}"
        raise InputError(f"{problem}: fix it, leave it out, or give another --text-field") from None

    def read(i: int) -> str:
        row = content.read(*bounds[2 * i : 2 * i + 2]).decode()
        return as_text(next(csv.reader(io.StringIO(row, newline=""), delimiter=delimiter))[column], str(content.path))

    return Documents(len(bounds) // 2, read, left_out)


@functools.lru_cache(maxsize=16)
def read_row_group(path: Path, group: int, field: str) -> Sequence:
    """The texts of a row group of Parquet, of which the last few are kept in memory."""
    with import_pyarrow(path).parquet.ParquetFile(path) as file:
        return file.read_row_group(group, columns=[field])[field].drop_null()


READING = threading.Lock()  # so that threads do not read one row group several times


def open_parquet(content: Content, field: str) -> Documents:
    path, pyarrow = content.path, import_pyarrow(content.path)
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            check_column(file.schema_arrow.names, field)
            groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
        counts = []
        for number, group in enumerate(groups):
            columns = (group.column(i) for i in range(group.num_columns))
            known = next((x.statistics for x in columns if x.path_in_schema == field), None)
            is_known = known is not None and known.has_null_count
            counts.append(group.num_rows - known.null_count if is_known else len(read_row_group(path, number, field)))
    except (pyarrow.ArrowException, ValueError, OSError) as error:
        problem = f"{path}: must be Parquet with a column {field}: {error}"
        raise InputError(f"{problem}: fix it, leave it out, or give another --text-field") from None
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
    """A file or a stream of record batches, as `save_to_disk` of datasets writes; it is mapped into memory."""
    path, pyarrow = content.path, import_pyarrow(content.path)
    try:
        is_file = content.read(0, min(content.size, 6)) == b"ARROW1"
        open_batches = pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream
        table = open_batches(pyarrow.memory_map(str(path))).read_all()
        check_column(table.column_names, field)
        column = table.column(field)
        column.validate(full=True)  # offsets of a damaged file would end the process
    except (pyarrow.ArrowException, ValueError, OSError) as error:
        problem = f"{path}: must be Arrow with a column {field}: {error}"
        raise InputError(f"{problem}: fix it, leave it out, or give another --text-field") from None
    rows = np.flatnonzero(column.is_valid()) if column.null_count else range(len(column))
    return Documents(len(rows), lambda i: as_text(column[int(rows[i])].as_py(), f"{path}: row {i}"), column.null_count)


def open_array_record(content: Content, field: str) -> Documents:
    path = content.path
    try:
        records = grain.sources.ArrayRecordDataSource(str(path))
    except RuntimeError as error:
        raise InputError(f"{path}: must be an ArrayRecord file: {error}") from None
    return Documents(len(records), lambda i: as_text(records[i], f"{path}: record {i}"))


FORMATS = {
    **{".jsonl": open_jsonl, ".ndjson": open_jsonl, ".json": open_json},
    **{".csv": open_csv, ".tsv": functools.partial(open_csv, delimiter="\t")},
    **{".parquet": open_parquet, ".arrow": open_arrow, ".array_record": open_array_record},
}


def open_by_format(path: Path, field: str) -> Documents:
    content, name = Content(path), path.name.lower()
    suffix = Path(name.removesuffix(path.suffix.lower()) if content.unpacked else name).suffix
    # the suffix may end in the number of a shard: .array_record-00000-of-00010
    open_format = FORMATS.get(suffix.partition("-")[0], open_text)
    if content.unpacked and open_format in (open_parquet, open_arrow, open_array_record):
        raise InputError(f"{path}: unpack it: it would be read in no order")
    return open_format(content, field)
