"""Batches of sequences: each document is a segment that attends only to itself, with positions from 0."""

import bisect
import collections
import functools
import itertools
import json
import math
import sys
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import grain
import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from generator.language import point, provide, splice
from generator.language.roles import (
    RULES,
    TEXT_BYTES,
    AnyTokenizer,
    InputError,
    encode_document,
    fingerprint,
    identity,
    load_tokenizer,
    open_documents,
    special_texts,
    warn_of_special_tokens,
)


class Config:
    eval_data: str = ""  # evaluation documents, in the form of data; "": a held-out share of data
    eval_share: float = 0.02  # share of documents held out (at most 10,000) without eval_data; 0: no evaluation
    sequence_length: int = 4096  # tokens in one training sequence
    allow_other_data: bool = False  # whether a run may resume with other data or another tokenizer
    batch_size: int = 8  # sequences in one optimizer step, over all devices


@splice("check_config.bounds")
def _(bounds):
    bounds.update(eval_share=(0, 0.999))


class Sequences(Iterator[dict[str, np.ndarray]]):
    """Yields the sequences of a row, each of pieces that fit together: dicts of arrays [sequence_length].

    int32 `tokens`, `targets` (the next tokens), `positions` (from 0 in each segment), `segment_ids` (1, 2, ...;
    0 is padding), fp32 `weights` (1 where a target counts). A segment is a document with bos and eos, or a
    piece of one longer than a sequence. Reads no more than the next sequence needs.
    """

    def __init__(self, order: grain.MapDataset, length: int, threads: int):
        """Takes `order`, the pieces of each document."""
        self.order, self.length, self.threads = order, length, threads
        self.set_state({"next": [0, 0], "given": 0, "waiting": []})

    def get_state(self) -> dict[str, Any]:
        """Returns the places [document, piece] of the next piece and of those that wait, which are reread."""
        places = [[place for place, _ in sequence] for sequence in self.waiting]
        return {"next": self.upcoming, "given": self.given, "waiting": places}

    def set_state(self, state: dict[str, Any]) -> None:
        self.upcoming, self.given = state["next"], state["given"]
        self.waiting = [[(place, self.order[place[0]][place[1]]) for place in x] for x in state["waiting"]]
        self.used = [sum(len(piece["tokens"]) for _, piece in sequence) for sequence in self.waiting]
        self.unread = self.read(*self.upcoming)

    def read(self, first: int, start: int) -> Iterator[tuple[list[int], dict[str, np.ndarray]]]:
        """Yields the pieces from a place on, each with its place."""
        options = grain.ReadOptions(self.threads, prefetch_buffer_size=8 * self.threads)
        for document, pieces in enumerate(self.order[first:].to_iter_dataset(options), first):
            for i in range(start if document == first else 0, len(pieces)):
                yield [document, i], {name: values.copy() for name, values in pieces[i].items()}

    def __next__(self) -> dict[str, np.ndarray]:
        most = None  # at the end of the data, any that waits may be chosen
        for place, piece in self.unread:
            self.upcoming, size = [place[0], place[1] + 1], len(piece["tokens"])
            with point("Sequences.place", self, size):
                chosen, most = len(self.waiting), 1  # each piece alone
            if chosen == len(self.waiting):
                self.waiting.append([])
                self.used.append(0)
            self.waiting[chosen].append((place, piece))
            self.used[chosen] += size
            if len(self.waiting) > most:
                break
        if not self.waiting:
            raise StopIteration
        # the fullest of those that waited, or every 16th time the oldest, so that none waits forever
        chosen = int(np.argmax(self.used[:most])) if self.given % 16 else 0
        self.used.pop(chosen)
        self.given += 1
        pieces = [piece for _, piece in self.waiting.pop(chosen)]
        with point("Sequences.sizes", pieces):
            sizes = [len(piece["tokens"]) for piece in pieces]
        row = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        row["positions"] = np.concatenate([np.arange(size, dtype=np.int32) for size in sizes])
        row["segment_ids"] = np.repeat(np.arange(1, len(sizes) + 1, dtype=np.int32), sizes)
        with point("Sequences.weights", row):
            row["weights"] = np.ones(sum(sizes), np.float32)
        point("Sequences.row", row)
        return {name: np.pad(values, (0, self.length - sum(sizes))) for name, values in row.items()}


def open_pieces(config: Config, path: str, tokenizer: AnyTokenizer, split: str) -> grain.MapDataset:
    """Returns the pieces of each document of a source, for training or for evaluation."""
    with point("open_pieces.documents", config, path, tokenizer):
        texts = open_documents(path, config.text_field)
        documents = texts.map(functools.partial(encode_document, tokenizer))
    share, length = 0.0 if config.eval_data else config.eval_share, config.sequence_length

    def held_out(n: int) -> int:  # among the first n, such as 1 in 50, by document number alone
        return min(10_000, math.ceil(share * n))

    before = held_out if split == "eval" and not config.eval_data else lambda n: n - held_out(n)

    def pieces(i: int) -> list[dict[str, np.ndarray]]:  # that fit a sequence, of the split's document i
        tokens = documents[bisect.bisect_left(range(1, len(documents) + 1), i + 1, key=before)]
        parts = [slice(start, start + length) for start in range(0, len(tokens) - 1, length)]
        with point("open_pieces.fields", tokens, parts):
            with point("open_pieces.pieces", i, tokens, parts, path=path, split=split, config=config):
                found = [{"tokens": tokens[:-1][part], "targets": tokens[1:][part]} for part in parts]
        return found

    source = grain.MapDataset.range(before(len(documents))).map(pieces)
    if not len(source):
        problem = f"{len(documents)} documents, {held_out(len(documents))} of them held out, are too few"
        raise InputError(f"data {path}: {problem}: give more, or a text of more than {TEXT_BYTES} bytes")
    if split == "train":
        names = special_texts(tokenizer)
        found = collections.Counter(name for text in texts[:100] for name in set(names.findall(text)))
        warn_of_special_tokens(path, "the first 100", found)
        if not any(source[i] for i in range(len(source))):
            with point("open_pieces.empty", path):
                raise InputError(f"data {path}: none of its documents has two tokens: give longer ones")
    return source


def make_datasets(config: Config, split: str, rows: Sequence[int] = (0,), seed: int = 0) -> list[Sequences]:
    """Returns the sequences of each row.

    "train" never ends. Each epoch deals out all documents, in a new order, to the rows of a batch, and each row
    packs its own. "eval" is one pass, not dealt out.
    """
    tokenizer = load_tokenizer(config.tokenizer, config.special_tokens)
    if (known := tokenizer.vocab_size) > (most := config.vocab_size):
        raise InputError(f"tokenizer {config.tokenizer}: its {known} tokens exceed a vocab_size of {most}: raise that")
    data = config.eval_data if split == "eval" and config.eval_data else config.data
    with point("make_datasets.orders", config, data, tokenizer, split, rows, seed):
        source = open_pieces(config, data, tokenizer, split)
        orders = [source]
        if split == "train":
            endless = source.seed(seed).shuffle().repeat()
            orders = [endless[row :: config.batch_size] for row in rows]
    threads = max(1, 16 // len(orders))
    return [Sequences(order, config.sequence_length, threads) for order in orders]


class Batches(Iterator[dict[str, np.ndarray]]):
    """Yields the rows of each training batch that devices of this process hold: dicts of arrays [rows, T].

    Each row has its own sequences, so batches are the same over any mesh and any number of processes.
    """

    def __init__(self, config: Config, sharding: NamedSharding):
        """Takes the `sharding` of the arrays [batch_size, T]."""
        self.config, self.sharding = config, sharding
        holders = collections.defaultdict(set)  # row -> processes with a device that holds it
        for device, index in sharding.devices_indices_map((config.batch_size, config.sequence_length)).items():
            for row in range(config.batch_size)[index[0]]:
                holders[row].add(device.process_index)
        self.rows = [row for row in range(config.batch_size) if jax.process_index() in holders[row]]
        self.kept = [row for row in self.rows if jax.process_index() == min(holders[row])]
        tokenizer = load_tokenizer(config.tokenizer, config.special_tokens)
        self.documents = zlib.crc32(json.dumps([fingerprint(config.data), identity(tokenizer)]).encode())
        point("Batches.documents", self, config, tokenizer)
        self.start(config.seed)

    def start(self, seed: int) -> None:
        """Starts the document order of a seed."""
        self.seed = seed
        datasets = make_datasets(self.config, "train", self.rows, seed)
        self.streams = dict(zip(self.rows, datasets, strict=True))

    def __next__(self) -> dict[str, np.ndarray]:
        sequences = [next(stream) for stream in self.streams.values()]
        return {name: np.stack([sequence[name] for sequence in sequences]) for name in sequences[0]}

    def to_devices(self, batch: dict[str, np.ndarray]) -> dict[str, Array]:
        """Returns global arrays [batch_size, T], made of the rows that each process yields."""
        arrays = {}
        for name, rows in batch.items():
            whole = np.zeros((self.config.batch_size, self.config.sequence_length), rows.dtype)
            whole[self.rows] = rows  # the others, of other processes, are not read
            arrays[name] = jax.make_array_from_callback(whole.shape, self.sharding, whole.__getitem__)
        return arrays

    def get_state(self) -> dict[int, Any]:
        """Returns the states of rows that this process is the first to hold: each is saved once."""
        known = {"rows": self.config.batch_size, "seed": self.seed, "documents": self.documents}
        return {row: known | {"stream": self.streams[row].get_state()} for row in self.kept}

    def set_state(self, states: dict[int, Any], step: int) -> None:
        """Resumes from the states of all rows after a step. Raises InputError if their data is not allowed."""
        point("Batches.states", states, step)
        config, documents = self.config, {state["documents"] for state in states.values()}
        if {state["rows"] for state in states.values()} != {len(states)}:
            raise ValueError("the states of some rows are missing")
        if documents != {self.documents}:
            problem = f"--data {config.data} --tokenizer {config.tokenizer}: not what this run had up to {step}"
            if not config.allow_other_data:
                raise InputError(f"{problem}: give the same files and tokenizer, or --allow-other-data")
            print(f"warning: {problem}", file=sys.stderr)
        if len(states) != config.batch_size:
            print(f"batch_size was {len(states)}: the documents come in a new order from here on")
            return self.start(config.seed + step)
        self.start(states[0]["seed"])
        for row, stream in self.streams.items():
            stream.set_state(states[row]["stream"])


def abstract_batch(config: Config, mesh: Mesh) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns abstract arrays [batch_size, T], rows over the devices, which must divide each microbatch."""
    parts = config.accumulation * math.prod(mesh.shape[axis] for axis in RULES["batch"])
    if config.batch_size % parts:
        factors = " x ".join(("accumulation", *RULES["batch"]))
        raise InputError(f"--batch-size {config.batch_size}: must be a multiple of {factors}, {parts}")
    dtypes = {name: "int32" for name in ("tokens", "targets", "positions", "segment_ids")} | {"weights": "float32"}
    point("abstract_batch.fields", dtypes, config=config)
    point("abstract_batch.layout", config, mesh)
    layout = NamedSharding(mesh, PartitionSpec(RULES["batch"], RULES["sequence"]))
    shape = config.batch_size, config.sequence_length
    return {name: jax.ShapeDtypeStruct(shape, dtype, sharding=layout) for name, dtype in dtypes.items()}


def evaluation_batches(config: Config) -> Iterator[dict[str, np.ndarray]]:
    """Yields the batches of "eval"; the last one is padded."""
    sequences = make_datasets(config, "eval")[0]
    while found := list(itertools.islice(sequences, config.batch_size)):
        yield grain.experimental.batch_and_pad(found, batch_size=config.batch_size)


def held_out_batches(config: Config, rows: list[int]) -> list[dict[str, np.ndarray]]:
    """Returns these rows of the first `eval_batches` batches of "eval"; [] without evaluation."""
    batches = evaluation_batches(config) if config.eval_data or config.eval_share else ()
    first = itertools.islice(batches, config.eval_batches)
    return [{name: values[rows] for name, values in batch.items()} for batch in first]


@provide("Decoder.hidden", optional=True)
def segment_ids() -> Array:
    return None


@provide("Decoder.__call__", optional=True)
def positions() -> Array:
    return None


@provide("Decoder.__call__", optional=True)
def segment_ids() -> Array:
    return None


@provide("loss")
def segment_ids(batch) -> Array:
    return batch["segment_ids"]


@provide("loss")
def positions(batch) -> Array:
    return batch["positions"]
