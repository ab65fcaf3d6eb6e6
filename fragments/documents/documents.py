"""Documents from files."""

import functools
import glob
import os
import re
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import grain

from generator.language import point
from generator.language.roles import JSONL, InputError, open_by_format, open_file


class DataConfig:
    """What the batches are made of."""

    data: str = ""  # documents: a file, a folder or a pattern of files; "": Python's standard library
    text_field: str = "text"  # field or column of the text, in files that have any


NO_DATA = re.compile("(?i)(readme|licen[cs]e|copying|notice)([-_][^.]*)?([.](md|rst|txt))?|.*(~|[.](swp|tmp|bak|part))")


@functools.cache  # warns once
def of_one_format(data: str, files: tuple[Path, ...]) -> list[Path]:
    """Returns those of a folder's files that have one format: JSONL, else text. Warns of the others."""
    with point("of_one_format.chosen", files):
        kept = [file for file in files if JSONL.search(file.name)]
        chosen = "JSONL" if kept else "text"
        kept = kept or [file for file in files if not NO_DATA.fullmatch(file.name)]
    if left_out := sorted(file.name for file in {*files} - {*kept}):
        what = f"{len(kept):,} files of {chosen} are read; {len(left_out):,} are not, such as {', '.join(left_out[:5])}"
        print(f"data {data}: {what}: a folder has one format, and a pattern takes what it matches", file=sys.stderr)
    return kept


def find_files(data: str) -> list[Path]:
    """Returns the sorted files of a path, pattern or folder, except hidden ones; for "", Python's library."""
    if "://" in data:
        raise InputError(f"data {data}: is on no disk: copy it to one, or mount the bucket (gcsfuse, mountpoint-s3)")
    path = Path(os.path.expanduser(data)) if data else Path(sysconfig.get_path("stdlib"))
    if not data:
        other = {"site-packages", "dist-packages", "test", "tests", "idle_test"}
        paths = (file for file in path.rglob("*.py") if other.isdisjoint(file.relative_to(path).parts))
    elif path.is_dir():
        paths = (file for file in path.rglob("*") if "/." not in f"/{file.relative_to(path).as_posix()}")
    else:
        paths = map(Path, [path] if path.exists() else glob.glob(str(path), recursive=True))
    files = sorted(file for file in paths if not file.is_dir())
    if odd := [file for file in files if not file.is_file()]:
        raise InputError(f"data {odd[0]}: is not a file, or is a broken link: fix it, or remove it")
    point("find_files.found", data, files)
    files = of_one_format(data, tuple(files)) if path.is_dir() else files
    if not files:
        raise InputError(f"data {data}: no file to read is there: give a file, a folder of files, or a pattern 'DIR/*'")
    return files


def open_files(files: Sequence[Path], field: str) -> tuple[grain.MapDataset, int, list[int]]:
    """Returns the documents of all files, how many null rows are left out, and how many documents each file has."""
    open_file.cache_clear()
    point("open_files.start")
    opened = [open_by_format(path, field) for path in files]
    parts = [grain.MapDataset.range(documents.count).map(documents.read) for documents in opened]
    return grain.MapDataset.concatenate(parts), sum(x.left_out for x in opened), [x.count for x in opened]


@functools.cache  # training and evaluation share it
def open_documents(data: str, field: str = "text") -> tuple[grain.MapDataset, list[int]]:
    """Returns the documents of files, and how many each file has."""
    documents, left_out, counts = open_files(find_files(data), field)
    if left_out:
        print(f"data {data}: {left_out:,} rows without a text (null) are left out", file=sys.stderr)
    return documents, counts
