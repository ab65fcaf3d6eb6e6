"""Batches of sequences: each document is a segment that attends only to itself, with positions from 0."""

import functools
import itertools
import json
import math
import sys
import zlib
from collections.abc import Iterator
from typing import Annotated, Any

import grain
import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from generator.language import point, provide
from generator.language.roles import (
    RULES,
    TEXT_BYTES,
    AnyTokenizer,
    Config,
    InputError,
    PositiveInt,
    encode_document,
    fingerprint,
    identity,
    load_tokenizer,
    open_documents,
)


class DataConfig:
    eval_data: str = ""  # evaluation documents, in the form of data; "": a held-out share of data
    eval_share: Annotated[float, 0, 0.999] = 0.02  # share of documents to hold out, about; up to about 10,000; 0: none
    sequence_length: PositiveInt = 4096  # tokens in one training sequence
    allow_other_data: bool = False  # whether a run may resume with other data or another tokenizer
    batch_size: PositiveInt = 8  # sequences in one optimizer step, over all devices


class Sequences(Iterator[list[dict[str, np.ndarray]]]):
    """Yields the pieces of each sequence; reads no more than it needs.

    Once a document begins an epoch, what waits is yielded first: no document is repeated before all others were read.
    """

    options = grain.ReadOptions(num_threads=16, prefetch_buffer_size=128)

    def __init__(self, order: grain.MapDataset, length: int):
        """Takes `order`: of each document, whether an epoch begins with it, and its pieces."""
        self.order, self.length = order, length
        self.set_state({"next": [0, 0], "packed": 0, "closed": 0, "waiting": [], "used": []})

    def get_state(self) -> dict[str, Any]:
        """Returns the places [document, piece] of the next piece and of those that wait, which are reread."""
        waiting = [[place for place, _ in pieces] for pieces in self.waiting]
        return dict(next=self.upcoming, packed=self.packed, closed=self.closed, used=[*self.used], waiting=waiting)

    def set_state(self, state: dict[str, Any]) -> None:
        self.upcoming, self.packed = state["next"], state["packed"]
        self.closed = state["closed"]  # sequences of an epoch that is over
        waiting = [[(place, self.order[place[0]][1][place[1] :][:1]) for place in x] for x in state["waiting"]]
        self.waiting = [[(place, piece) for place, pieces in x for piece in pieces] for x in waiting]
        self.used = [sum(len(piece["tokens"]) for _, piece in pieces) for pieces in self.waiting]
        if self.used != state["used"]:  # other documents, or of other lengths: they are read again
            self.upcoming = [min(map(min, state["waiting"]))[0], 0]
            self.closed = 0
            self.waiting, self.used = [], []
        self.unread = self.read(*self.upcoming)

    def read(self, first: int, start: int) -> Iterator[tuple[list[int], bool, dict[str, np.ndarray]]]:
        """Yields the pieces from a place on: each one's place, whether an epoch begins with it, and the piece."""
        begins = False
        for document, (begins_epoch, pieces) in enumerate(self.order[first:].to_iter_dataset(self.options), first):
            done = start if document == first else 0
            begins |= begins_epoch and not done
            for i, piece in enumerate(pieces[done:], done):
                yield [document, i], begins, piece
                begins = False

    def __next__(self) -> list[dict[str, np.ndarray]]:
        for place, begins, piece in () if self.closed else self.unread:
            self.upcoming = [place[0], place[1] + 1]
            size = len(piece["tokens"])
            self.closed = len(self.waiting) if begins else 0
            with point("Sequences.place", self, size):
                chosen = len(self.waiting)  # each piece alone
                most = 0
            if chosen == len(self.waiting):
                self.waiting.append([])
                self.used.append(0)
            self.waiting[chosen].append((place, piece))
            self.used[chosen] += size
            if self.closed or len(self.waiting) > most:
                break
        if not self.waiting:
            raise StopIteration
        with point("Sequences.choose", self):
            chosen = 0
        self.packed += 1
        self.closed = max(0, self.closed - 1)
        self.used.pop(chosen)
        return [piece for _, piece in self.waiting.pop(chosen)]


def join_pieces(pieces: list[dict[str, np.ndarray]], length: int) -> dict[str, np.ndarray]:
    """Returns a sequence: a dict of arrays [length].

    int32 `tokens`, `targets` (the next tokens), `positions` (from 0 in each segment), `segment_ids` (1, 2, ...;
    0 is padding), fp32 `weights` (1 where a target counts). A segment is a document with bos and eos, or a
    piece of one longer than a sequence.
    """
    with point("join_pieces.sizes", pieces):
        sizes = [len(piece["tokens"]) for piece in pieces]
    row = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    row["positions"] = np.concatenate([np.arange(size, dtype=np.int32) for size in sizes])
    row["segment_ids"] = np.repeat(np.arange(1, len(sizes) + 1, dtype=np.int32), sizes)
    with point("join_pieces.weights", row):
        row["weights"] = np.ones(sum(sizes), np.float32)
    point("join_pieces.row", row)
    with point("join_pieces.padded", row, sizes, length):
        padded = {name: np.pad(values, (0, length - sum(sizes))) for name, values in row.items()}
    return padded


def open_pieces(config: Config, path: str, tokenizer: AnyTokenizer, split: str) -> grain.MapDataset:
    """Returns the pieces of each document of a source, for training or for evaluation."""
    with point("open_pieces.documents", config, path, tokenizer):
        texts, counts = open_documents(path, config.text_field)
        documents = texts.map(functools.partial(encode_document, tokenizer))
    count = len(documents)
    length = config.sequence_length
    empty = len(tokenizer.prefix) + 1
    target = 0 if config.eval_data else min(10_000, math.ceil(config.eval_share * count))
    near = min(itertools.accumulate(reversed(counts)), key=lambda n: abs(n - target), default=0)  # in the last files
    held_out = near if target <= 2 * near <= 3 * target and near < count else target

    def pieces(i: int) -> list[dict[str, np.ndarray]]:  # that fit a sequence; none of an empty text
        tokens = documents[i]
        parts = [slice(start, start + length) for start in range(0, len(tokens) - 1, length) if len(tokens) > empty]
        with point("open_pieces.fields", tokens, parts):
            with point("open_pieces.pieces", i, tokens, parts, path=path, split=split, config=config):
                cut_pieces = [{"tokens": tokens[:-1][part], "targets": tokens[1:][part]} for part in parts]
        return cut_pieces

    first, last = (count - held_out, count) if split == "eval" and not config.eval_data else (0, count - held_out)
    source = grain.MapDataset.range(first, last).map(pieces)
    if not any(source[i] for i in range(len(source))):
        problem = f"of {count} documents {held_out} are held out, and none with text is left for {split}"
        point("open_pieces.empty", problem)
        raise InputError(f"data {path}: {problem}: give more, a text of over {TEXT_BYTES} bytes, or --eval-share 0")
    point("open_pieces.source", texts, tokenizer, path, split)
    return source


def open_source(config: Config, split: str) -> grain.MapDataset:
    """Returns the pieces of each document, for "train" or "eval"."""
    tokenizer = load_tokenizer(config.tokenizer, config.special_tokens)
    if (known := tokenizer.vocab_size) > (most := config.vocab_size):
        raise InputError(f"tokenizer {config.tokenizer}: its {known} tokens exceed a vocab_size of {most}: raise that")
    data = config.eval_data if split == "eval" and config.eval_data else config.data
    with point("open_source.pieces", config, data, tokenizer, split):
        source = open_pieces(config, data, tokenizer, split)
    return source


def repeat(source: grain.MapDataset, seed: int) -> grain.MapDataset:
    """Returns documents without end, in a new order each epoch, and whether an epoch begins with each."""
    endless = source.seed(seed).shuffle().repeat()
    return endless.map_with_index(lambda i, pieces: (i % len(source) == 0, pieces))


class Batches(Iterator[dict[str, np.ndarray]]):
    """Yields the rows of each training batch that devices of this process hold: dicts of arrays [rows, T].

    All processes pack all documents, in one order, so batches are the same over any mesh and number of processes.
    """

    def __init__(self, config: Config, sharding: NamedSharding):
        """Takes the `sharding` of the arrays [batch_size, T]."""
        self.config, self.sharding = config, sharding
        shape = config.batch_size, config.sequence_length
        slices = [index[0] for index in sharding.addressable_devices_indices_map(shape).values()]
        self.rows = sorted({row for rows in slices for row in range(config.batch_size)[rows]})
        tokenizer = load_tokenizer(config.tokenizer, config.special_tokens)
        self.documents = zlib.crc32(json.dumps([fingerprint(config.data), identity(tokenizer)]).encode())
        point("Batches.documents", self, config, tokenizer)
        self.source = open_source(config, "train")
        self.start(config.seed)

    def start(self, seed: int) -> None:
        """Starts the document order of a seed."""
        self.seed = seed
        with point("Batches.order", self, seed):
            order = repeat(self.source, seed)
        self.sequences = Sequences(order, self.config.sequence_length)

    def __next__(self) -> dict[str, np.ndarray]:
        packed = list(itertools.islice(self.sequences, self.config.batch_size))
        sequences = [join_pieces(packed[row], self.config.sequence_length) for row in self.rows]
        return {name: np.stack([sequence[name] for sequence in sequences]) for name in sequences[0]}

    def epoch(self) -> float:
        """Returns how many epochs are done: the documents read, but those with a waiting piece, over all."""
        waiting = {place[0] for pieces in self.sequences.waiting for place, _ in pieces}
        return (self.sequences.upcoming[0] - len(waiting - {self.sequences.upcoming[0]})) / len(self.source)

    def to_devices(self, batch: dict[str, np.ndarray]) -> dict[str, Array]:
        """Returns global arrays [batch_size, T], made of the rows that each process yields."""
        arrays = {}
        for name, rows in batch.items():
            with point("Batches.values", self, rows):
                values = np.zeros((self.config.batch_size, self.config.sequence_length), rows.dtype)
            values[self.rows] = rows  # the others, of other processes, are not read
            arrays[name] = jax.make_array_from_callback(values.shape, self.sharding, values.__getitem__)
        return arrays

    def get_state(self) -> dict[str, Any]:
        """Returns how far the data has been read, which is the same in all processes."""
        return {"seed": self.seed, "documents": self.documents, "sequences": self.sequences.get_state()}

    def set_state(self, state: dict[str, Any], step: int) -> None:
        """Resumes from the state after a step. Raises InputError if its data is not allowed."""
        point("Batches.state", state, step)
        config = self.config
        if state["documents"] != self.documents:
            problem = f"--data {config.data} --tokenizer {config.tokenizer}: not what this run had up to {step}"
            if not config.allow_other_data:
                raise InputError(f"{problem}: give the same files and tokenizer, or --allow-other-data")
            print(f"warning: {problem}", file=sys.stderr)
        if state["seed"] != config.seed:
            print(f"warning: --seed {config.seed}: the order of data stays that of {state['seed']}", file=sys.stderr)
        self.start(state["seed"])
        self.sequences.set_state(state["sequences"])


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
    arrays = {name: jax.ShapeDtypeStruct(shape, dtype, sharding=layout) for name, dtype in dtypes.items()}
    point("abstract_batch.arrays", arrays, layout, shape, config=config)
    return arrays


def evaluation_batches(config: Config) -> Iterator[dict[str, np.ndarray]]:
    """Yields the batches of "eval"; the last one is padded."""
    sequences = Sequences(open_source(config, "eval").map(lambda pieces: (False, pieces)), config.sequence_length)
    while rows := [join_pieces(x, config.sequence_length) for x in itertools.islice(sequences, config.batch_size)]:
        yield grain.experimental.batch_and_pad(rows, batch_size=config.batch_size)


def held_out_batches(config: Config, rows: list[int]) -> list[dict[str, np.ndarray]]:
    """Returns these rows of the first `eval_batches` batches of "eval"; [] without evaluation."""
    if not (config.eval_data or config.eval_share):
        return []
    with point("held_out_batches.batches", config, rows):
        first = itertools.islice(evaluation_batches(config), config.eval_batches)
        batches = [{name: values[rows] for name, values in batch.items()} for batch in first]
    return batches


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
