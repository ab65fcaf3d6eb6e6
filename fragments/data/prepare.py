"""Tokenises documents before training."""

import collections
import concurrent.futures
import contextlib
import functools
import hashlib
import json
import math
import multiprocessing
import os
import re
import secrets
import time
from pathlib import Path
from typing import Any

import rich.progress
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter
from tyro.conf import Positional

from generator.language import point, requires
from generator.language.roles import (
    ExitCode,
    InputError,
    Stop,
    encode_document,
    end_with_parent,
    find_files,
    identity,
    load_tokenizer,
    open_files,
    open_prepared,
    read_description,
    special_texts,
    token_type,
    warn_of_special_tokens,
)

requires("data/prepared")

Shard = tuple[tuple[Path, ...], int, int]  # files, the part of their documents, of how many parts

last_opened = functools.lru_cache(maxsize=1)(open_files)  # shards of the same files come one after the other


def plan_shards(files: list[Path], sizes: list[int]) -> list[Shard]:
    """Divides files into shards of about as many bytes each."""
    # bounds what a killed worker repeats; a power of two, so that it stays the same after a file is repaired
    goal = min(max(2 ** (max(sum(sizes) // 256, 1).bit_length() - 1), 2**20), 2**30)
    plan, group = [], []
    total = 0
    for path, size in zip(files, sizes, strict=True):
        group = [*group, path]
        total = total + size
        if total >= goal or path == files[-1]:
            parts = max(1, round(total / goal))
            plan += [(tuple(group), part, parts) for part in range(parts)]
            group = []
            total = 0
    return plan


def write_shard(
    path: Path, files: tuple[Path, ...], part: int, parts: int, field: str, name: str, special: bool
) -> tuple[int, int, collections.Counter[str]]:
    """Writes the tokens of documents to a file, which gets its name once it is complete.

    Returns the number of its documents, of rows that its files leave out (counted for their first part only),
    and, by special token, of its documents that hold the text of that token.
    """
    documents, left_out, _ = last_opened(files, field)
    tokenizer = load_tokenizer(name, special)
    dtype = token_type(tokenizer)
    names = special_texts(tokenizer)
    special_counts = collections.Counter[str]()
    numbers = range(len(documents) * part // parts, len(documents) * (part + 1) // parts)
    point("write_shard.start", path, tokenizer, name, documents, numbers)
    half = path.with_name(f"{path.name}.half-{secrets.token_hex(4)}")
    try:
        with contextlib.closing(ArrayRecordWriter(str(half), "group_size:1")) as writer:
            for text in (documents[i] for i in numbers):
                special_counts.update(set(names.findall(text)))
                with point("write_shard.record", writer, text, dtype):
                    writer.write(encode_document(tokenizer, text).astype(dtype).tobytes())
        give_name(half, path)
    except RuntimeError as error:  # ArrayRecord turns an OSError into this
        raise OSError(f"{path}: {error}") from None
    finally:
        half.unlink(missing_ok=True)
    return len(numbers), 0 if part else left_out, special_counts


def name_shard(files: list[tuple[str, int, int]], part: int, parts: int, rules: dict[str, Any]) -> str:
    """Names a shard by a hash of its files (path, size, modification time), its part of them, and what is wanted."""
    return f"tokens-{hashlib.blake2b(repr((files, part, parts, rules)).encode(), digest_size=8).hexdigest()}"


def give_name(half: Path, path: Path) -> None:
    """Renames a complete file. Its name may be there, and this half removed, by a task that saw all complete."""
    try:
        half.rename(path)
    except FileNotFoundError:
        if not path.exists():
            raise


def parse_shard(text: str) -> tuple[int, int]:
    """Parses I/N: task I of N, from 0."""
    task, tasks = map(int, text.split("/")) if re.fullmatch(r"[0-9]{1,9}/[0-9]{1,9}", text) else (1, 0)
    if task >= tasks:
        raise InputError(f"--shard {text}: must be I/N, for task I of N, numbered from 0: 0/8 is the first of 8 tasks")
    return task, tasks


def check_apart(out: str, source: str, files: list[Path]) -> None:
    """Raises InputError if the folder lies in the source, or the source in it."""
    folder = Path(out).expanduser().resolve()
    inside = source and Path(source).expanduser().resolve() in (folder, *folder.parents)
    if inside or any(folder in file.resolve().parents for file in files):
        raise InputError(f"{out}: it and {source} must not contain each other: give another folder")


def first_document(files: list[Path], text_field: str) -> list[str]:
    """Returns the first document of the files, alone; nothing if there is none."""
    sources = (open_files([file], text_field)[0] for file in files)
    return next(([documents[0]] for documents in sources if len(documents)), [])


def sizes_and_times(files: list[Path]) -> dict[Path, tuple[int, int]]:
    """Returns the size and the modification time, in nanoseconds, of each file."""
    return {file: (file.stat().st_size, file.stat().st_mtime_ns) for file in files}


class PreparedFolder:
    """A folder for the shards of a plan, to which several tasks may write at the same time.

    Attributes:
        plan: shard by the name of its file.
        rules: what tokens depend on, beside the documents.
        known: documents by file, if the folder was complete before.
    """

    def __init__(self, out: str, plan: dict[str, Shard], rules: dict[str, Any], tasks: int):
        """Makes the folder, or goes on with it. Raises InputError if what it holds is of another plan."""
        self.out, self.plan, self.rules, self.tasks = out, plan, rules, tasks
        self.path = Path(out).expanduser().resolve()
        is_used = self.path.exists() and not all(x.name.startswith("prepared.json") for x in self.path.iterdir())
        description = read_description(out)  # after that: another task may begin it right now
        if not description and is_used:
            raise InputError(f"{out}: already exists: give a new folder")
        self.known = description["shards"] if description else {}
        # an incomplete folder may resume after files were repaired
        is_of_others = self.known and self.known.keys() != plan.keys()
        if description and (description | rules != description or is_of_others):
            raise InputError(f"{out}: was prepared from other files, or for another tokenizer: give a new folder")
        if not description:
            self.path.mkdir(parents=True, exist_ok=True)
            self.describe({})
        self.check_others()
        # other tasks may be writing theirs
        self.abandoned = math.inf if tasks == 1 else time.time() - 3600
        self.remove_halves(self.abandoned)

    def describe(self, shards: dict[str, int]) -> None:
        """Writes the description: documents by file; none if it is incomplete."""
        half = self.path / f"prepared.json.half-{secrets.token_hex(4)}"
        half.write_text(json.dumps(self.rules | {"shards": shards}))
        give_name(half, self.path / "prepared.json")

    def count(self, name: str) -> int | None:
        """Counts the documents of a shard; None if it is missing or incomplete."""
        reader = ArrayRecordReader(str(self.path / name))
        number = reader.num_records() if reader.ok() else None
        return number if number == self.known.get(name, number) else None

    def check_others(self) -> None:
        """Raises InputError if other tasks see other files, or work for another tokenizer."""
        others = {x.name for x in self.path.glob("tokens-*") if ".half-" not in x.name} - self.plan.keys()
        if self.tasks > 1 and others:
            raise InputError(
                f"{self.out}: {min(others)} is of files that have changed since, or that this task sees differently: "
                "start it without --shard once all tasks have ended, which goes on with it"
            )

    def remove_halves(self, before: float = math.inf) -> None:
        """Removes files that workers did not finish, and last wrote to before a time (seconds since the epoch)."""
        for half in self.path.glob("*.half-*"):
            with contextlib.suppress(FileNotFoundError):
                if half.stat().st_mtime < before:
                    half.unlink()

    def finish(self, counts: dict[str, int]) -> None:
        """Records that all shards are complete, and removes those of files that have changed since."""
        self.describe(counts)
        self.remove_halves()
        for old in {*self.path.glob("tokens-*")} - {self.path / name for name in self.plan}:
            old.unlink(missing_ok=True)


def write_shards(
    pool: concurrent.futures.Executor, folder: PreparedFolder, counts: dict[str, int | None], options: tuple
) -> tuple[int, collections.Counter[str]]:
    """Writes the shards whose count is None, and counts their documents.

    Returns the number of rows left out, and the counts of special tokens' texts, as `write_shard` does; `options` are
    its last arguments.
    """
    left_out = 0
    special = collections.Counter[str]()
    missing = [name for name, number in counts.items() if number is None]
    try:
        with pool:
            write = functools.partial(pool.submit, write_shard)
            futures = {write(folder.path / name, *folder.plan[name], *options): name for name in missing}
            done = concurrent.futures.as_completed(futures)
            try:
                for future in rich.progress.track(done, "shards", len(counts), len(counts) - len(missing)):
                    counts[futures[future]], nulls, names = future.result()
                    left_out = left_out + nulls
                    special = special + names
            finally:
                for worker in multiprocessing.active_children() if None in counts.values() else ():
                    worker.terminate()
    except concurrent.futures.BrokenExecutor:
        raise Stop(f"{folder.out}: a worker was killed, for want of memory? Try fewer --workers") from None
    except KeyboardInterrupt:
        raise Stop(f"{folder.out}: stopped: the same command goes on with it", ExitCode.PREEMPTED) from None
    finally:
        folder.remove_halves(folder.abandoned)
    return left_out, special


def prepare(
    source: Positional[str],
    out: Positional[str],
    tokenizer: str,
    special_tokens: bool = False,
    text_field: str = "text",
    workers: int = os.cpu_count() or 1,
    shard: str = "0/1",
) -> None:
    """Tokenises documents into a new folder, for --data of train. When started again, it resumes.

    Args:
        source: File, folder or pattern: text, JSONL, JSON, CSV, Parquet, Arrow, ArrayRecord; may be compressed.
        out: Folder for the tokens.
        tokenizer: Path of a tokenizer.json, or bytes; train needs the same one.
        special_tokens: Whether <|im_end|> and the like in documents are tokens, not text; train needs the same.
        text_field: Field or column that holds the text, in JSONL, JSON, CSV, Parquet and Arrow.
        workers: Number of parallel processes.
        shard: I/N does the share of task I of N, 0 to N - 1, of an array; what ends last completes the folder.
    """
    if "://" in out or workers < 1:
        raise InputError(f"{out} --workers {workers}: must be a folder on a disk, and at least one worker")
    task, tasks = parse_shard(shard)
    files = find_files(source)
    check_apart(out, source, files)
    loaded = load_tokenizer(tokenizer, special_tokens)
    rules = {"source": source, "text_field": text_field, "tokenizer": identity(loaded)}
    point("prepare.rules", rules, tokenizer, loaded, first=first_document(files, text_field))
    stats = sizes_and_times(files)
    shards = plan_shards(files, [size for size, _ in stats.values()])
    plan = {name_shard([(str(x), *stats[x]) for x in group], *part, rules): (group, *part) for group, *part in shards}
    folder = PreparedFolder(out, plan, rules, tasks)
    # files that lie together, for each task reads through the texts that it opens
    names = list(plan)[len(plan) * task // tasks : len(plan) * (task + 1) // tasks]
    counts = {name: folder.count(name) for name in names}
    with point("prepare.pool", workers):
        spawn = multiprocessing.get_context("spawn")
        pool = concurrent.futures.ProcessPoolExecutor(workers, spawn, end_with_parent)
    left_out, special = write_shards(pool, folder, counts, (text_field, tokenizer, special_tokens))
    if stats != sizes_and_times(files):  # workers reread them
        raise InputError(f"{source}: has changed since this began: start again, which writes anew what has changed")
    warn_of_special_tokens(source, f"{sum(counts.values()):,}", special)
    if left_out:
        print(f"{left_out:,} rows without a text (null) are left out")
    counts_of_all = {name: folder.count(name) for name in plan} if tasks > 1 else counts
    if None in counts_of_all.values():
        folder.check_others()
        missing = {(tasks * (i + 1) - 1) // len(plan) for i, name in enumerate(plan) if counts_of_all[name] is None}
        left = f"{out} still lacks files of {len(missing)} tasks, such as task {min(missing)}"
        print(f"task {task} of {tasks}: {len(counts)} files are complete; {left}")
        return
    tokens = open_prepared(str(folder.path), counts_of_all, token_type(loaded))
    if not any(len(tokens[i]) > len(loaded.prefix) + 1 for i in range(len(tokens))):
        raise InputError(f"{source}: none of its {len(tokens):,} documents has any text: give another source")
    folder.finish(counts_of_all)
    total = f"{sum(counts_of_all.values()):,} documents in {len(plan)} files"
    print(f"{total}: train with --data {out} --tokenizer {tokenizer}")
