"""Documents from text, JSONL, Parquet and ArrayRecord files."""

import functools
import glob
import io
import itertools
import json
import os
import sysconfig
import threading
from collections.abc import Sequence
from pathlib import Path

import grain
import numpy as np

from generator.language.roles import InputError


class Config:
    # a file, folder or pattern of text, JSONL, Parquet or ArrayRecord, or a folder that `data prepare` wrote; several
    # by their shares of the documents, each shuffled and repeated by itself, "0.7:PATH,0.3:PATH"; "": this Python's own
    # standard library
    data: str = ""


TEXT_BYTES = 65_536  # about the longest document from a plain text file


class OpenFile(io.FileIO):
    __del__ = io.FileIO.close  # when it has left the cache, and no thread reads from it


open_file = functools.lru_cache(maxsize=256)(OpenFile)


def read_bytes(path: Path, start: int, stop: int) -> bytes:
    file = open_file(path)
    content = os.pread(file.fileno(), stop - start, start)
    if len(content) < stop - start:
        raise InputError(f"{path}: has been cut to {start + len(content)} bytes since the run began: start again")
    return content


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


def open_text(path: Path) -> grain.MapDataset:
    size = path.stat().st_size
    if b"\0" in read_bytes(path, 0, min(size, 8192)):  # as git recognises binary files
        raise InputError(f"{path}: neither text nor a file type that is known: unpack it, or choose: 'DIR/**/*.txt'")
    count = -(-size // TEXT_BYTES)
    bounds = {0, size}
    for offset in (size * i // count for i in range(1, count)):
        window = read_bytes(path, offset, min(size, offset + 4096))
        characters = (i for i, byte in enumerate(window) if byte & 0xC0 != 0x80)  # where a character of UTF-8 begins
        bounds.add(offset + (window.find(b"\n") + 1 or next(characters, 0)))
    pieces = grain.MapDataset.source(list(itertools.pairwise(sorted(bounds))))
    return pieces.map(lambda piece: as_text(read_bytes(path, *piece), f"{path} from byte {piece[0]}"))


def open_jsonl(path: Path) -> grain.MapDataset:
    """Reads the file once to find its lines; leaves blank ones out."""
    with path.open("rb") as file:
        lengths = np.fromiter((-len(line) if line in (b"\n", b"\r\n") else len(line) for line in file), np.int64)
    lines, lengths = np.flatnonzero(lengths > 0), np.abs(lengths)  # of blank lines, they are negative up to here
    ends = np.cumsum(lengths)

    def read(i: int) -> str:
        stop, source = ends[lines[i]], f"{path}:{lines[i] + 1}"
        try:
            return as_text(json.loads(read_bytes(path, stop - lengths[lines[i]], stop))["text"], source)
        except (ValueError, RecursionError, KeyError, TypeError) as error:  # no JSON, no field text, no object
            problem = f"{source}: must be JSON with a field text: {type(error).__name__}: {error}"
            raise InputError(f"{problem}: fix it, or leave it out") from None

    return grain.MapDataset.range(len(lines)).map(read)


@functools.lru_cache(maxsize=16)
def read_row_group(path: Path, group: int | None) -> Sequence:
    """The column text of a row group, of which the last few are kept in memory; None: the rows of each, how many."""
    try:
        from pyarrow import ArrowException, parquet  # not needed for the other formats

        with parquet.ParquetFile(path) as file:
            if group is not None:
                return file.read_row_group(group, columns=["text"])["text"]
            file.schema_arrow.field("text")
            return [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    except ImportError:
        raise InputError(f"{path}: needs pyarrow: pip install pyarrow") from None
    except (ArrowException, KeyError, OSError) as error:
        raise InputError(f"{path}: must be Parquet with a column text: {error}") from None


READING = threading.Lock()  # so that threads do not read one row group several times


def open_parquet(path: Path) -> grain.MapDataset:
    ends = np.cumsum(read_row_group(path, None))

    def read(i: int) -> str:
        group = int(np.searchsorted(ends, i, "right"))
        with READING:
            rows = read_row_group(path, group)
        return as_text(rows[i - ends[group]].as_py(), f"{path}: row {i}")

    return grain.MapDataset.range(ends[-1] if len(ends) else 0).map(read)


def open_array_record(path: Path) -> grain.MapDataset:
    try:
        records = grain.sources.ArrayRecordDataSource(str(path))
    except RuntimeError as error:
        raise InputError(f"{path}: must be an ArrayRecord file: {error}") from None
    return grain.MapDataset.range(len(records)).map(lambda i: as_text(records[i], f"{path}: record {i}"))


def find_files(data: str) -> list[Path]:
    """A file, the files below a folder but hidden ones, or a pattern's; for "", this Python's own library; sorted."""
    if "://" in data:
        raise InputError(f"data {data}: is on no disk: copy it to one, or mount the bucket (gcsfuse, mountpoint-s3)")
    path = Path(os.path.expanduser(data)) if data else Path(sysconfig.get_path("stdlib"))
    if not data:
        other = {"site-packages", "dist-packages", "test", "tests", "idle_test"}
        found = (file for file in path.rglob("*.py") if other.isdisjoint(file.relative_to(path).parts))
    elif path.is_dir():
        found = (file for file in path.rglob("*") if "/." not in f"/{file.relative_to(path).as_posix()}")
    else:
        found = map(Path, [path] if path.exists() else glob.glob(str(path), recursive=True))
    files = sorted(file for file in found if not file.is_dir())
    if not files:
        raise InputError(f"data {data}: no such file: give a file, a folder that holds files, or a pattern 'DIR/*.txt'")
    if odd := [file for file in files if not file.is_file()]:
        raise InputError(f"data {odd[0]}: is not a file, or is a broken link: fix it, or remove it")
    if prepared := [file.parent for file in files if file.name == "prepared.json"]:
        raise InputError(f"data {data}: {prepared[0]} is prepared data: give that by itself, to train")
    return files


def open_files(files: Sequence[Path]) -> grain.MapDataset:
    """The documents of all files, numbered in the order of the files."""
    open_file.cache_clear()
    read_row_group.cache_clear()
    formats = {".jsonl": open_jsonl, ".parquet": open_parquet, ".array_record": open_array_record}
    # the suffix may end in the number of a shard: .array_record-00000-of-00010
    parts = [formats.get(path.suffix.lower().partition("-")[0], open_text)(path) for path in files]
    return grain.MapDataset.concatenate(parts)


@functools.cache  # training and evaluation share it
def open_documents(data: str) -> grain.MapDataset:
    return open_files(find_files(data))
