"""Batches of sequences, in which each document is a segment: it attends to itself, and its positions start at 0."""

import bisect
import collections
import functools
import itertools
import json
import math
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
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
    InputError,
    count_special,
    fingerprint,
    identity,
    load_tokenizer,
    open_documents,
    open_tokens,
    read_description,
    split_mixture,
    warn_of_special_tokens,
)


class Config:
    eval_data: str = ""  # documents for evaluation, given as data is; "": a share of data, which is not trained on
    eval_share: float = 0.02  # share of the documents that is held out where there is no eval_data; 0: no evaluation
    sequence_length: int = 4096  # tokens in one training sequence
    allow_other_data: bool = False  # whether a run may go on with other data or another tokenizer
    batch_size: int = 8  # sequences in one optimizer step, over all devices


@splice("check_config.bounds")
def _(bounds):
    bounds.update(eval_share=(0, 0.999))


class Pieces:
    """The documents of a split, of which `before(n)` are among the first n: each the pieces that fit a sequence."""

    def __init__(self, documents: Sequence[np.ndarray], before: Callable[[int], int], length: int):
        self.documents, self.before, self.length = documents, before, length

    def __len__(self) -> int:
        return self.before(len(self.documents))

    def __getitem__(self, i: int) -> list[dict[str, np.ndarray]]:
        tokens = self.documents[bisect.bisect_left(range(1, len(self.documents) + 1), i + 1, key=self.before)]
        parts = [slice(start, start + self.length) for start in range(0, len(tokens) - 1, self.length)]
        with point("Pieces.fields", tokens, parts):
            pieces = [{"tokens": tokens[:-1][part], "targets": tokens[1:][part]} for part in parts]
        return pieces


class Unlist(grain.experimental.FlatMapTransform):
    """Passes the elements of a list on, one by one."""

    def flat_map(self, element: list) -> list:
        return element


def make_datasets(config: Config, split: str, rows: Sequence[int] = (0,), seed: int = 0) -> list[grain.IterDataset]:
    """A dataset of sequences for each row: dicts of arrays [sequence_length].

    int32 `tokens`, `targets` (the tokens that follow), `positions` (from 0 in each segment), `segment_ids` (1, 2, ...;
    0 is padding), fp32 `weights` (1 where a target counts). A segment is a document with bos and eos, or a piece of one
    longer than a sequence. "train" never ends: all documents, in a new order each epoch, are dealt out to the rows of
    a batch, and each row packs its own. "eval" is one pass, not dealt out. Of several sources each has epochs of its
    own, and every row has their documents by weight, to a hundredth of the smallest; "eval" ends with the first.
    """
    tokenizer, length = load_tokenizer(config.tokenizer, config.special_tokens), config.sequence_length
    if (known := tokenizer.vocab_size) > (most := config.vocab_size):
        raise InputError(f"tokenizer {config.tokenizer}: its {known} tokens exceed a vocab_size of {most}: raise that")
    share = 0.0 if config.eval_data else config.eval_share
    data = config.eval_data if split == "eval" and config.eval_data else config.data

    def held_out(n: int) -> int:  # of the first n documents: 1 in 50, say, by their numbers alone
        return math.ceil(share * n)

    before = held_out if split == "eval" and not config.eval_data else lambda n: n - held_out(n)
    weights, paths = zip(*split_mixture(data), strict=True)
    sources = []
    for path in paths:
        documents = open_tokens(path, tokenizer, config.text_field)
        if split == "train" and not read_description(path):
            found = count_special(tokenizer, open_documents(path, config.text_field))
            warn_of_special_tokens(path, "the first 100", found)
        sources.append(grain.MapDataset.source(Pieces(documents, before, length)))
        if not len(sources[-1]):
            problem = f"{len(documents)} documents, {held_out(len(documents))} of them held out, are too few"
            raise InputError(f"data {path}: {problem}: give more, or a text of more than {TEXT_BYTES} bytes")
    orders = [grain.MapDataset.mix(sources, weights)]
    if split == "train":
        endless = [source.seed(seed).shuffle().repeat() for source in sources]
        dealt = [[source[row :: config.batch_size] for source in endless] for row in rows]
        orders = [grain.MapDataset.mix(parts, weights) for parts in dealt]
    threads = max(1, 16 // len(orders))

    def finish(packed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        row = {"tokens": packed["tokens"], "targets": packed["targets"], "positions": packed["tokens_positions"]}
        row["segment_ids"] = packed["tokens_segment_ids"]
        with point("make_datasets.row", row, packed):
            row = row | {"weights": (row["segment_ids"] > 0).astype(np.float32)}
        return row

    def pack(order: grain.MapDataset) -> grain.IterDataset:
        pieces = order.to_iter_dataset(grain.ReadOptions(threads, prefetch_buffer_size=8 * threads))
        with point("make_datasets.sequences", pieces, split, length):

            def to_row(piece: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
                used = len(piece["tokens"])
                row = piece | {"tokens_positions": np.arange(used), "tokens_segment_ids": np.ones(used, np.int32)}
                return {name: np.pad(values, (0, length - used)) for name, values in row.items()}

            sequences = grain.experimental.FlatMapIterDataset(pieces, Unlist()).map(to_row)
        return sequences.map(finish)

    return [pack(order) for order in orders]


class Batches:
    """The training batches: of each, the rows that devices of this process hold, dicts of arrays [rows, T].

    A row has sequences of its own, so the batches are the same over any mesh and any number of processes.
    """

    def __init__(self, config: Config, sharding: NamedSharding):
        """`sharding`: of the arrays [batch_size, T]."""
        self.config, self.sharding = config, sharding
        holders = collections.defaultdict(set)  # row -> processes with a device that holds it
        for device, index in sharding.devices_indices_map((config.batch_size, config.sequence_length)).items():
            for row in range(config.batch_size)[index[0]]:
                holders[row].add(device.process_index)
        self.rows = [row for row in range(config.batch_size) if jax.process_index() in holders[row]]
        self.kept = [row for row in self.rows if jax.process_index() == min(holders[row])]
        tokenizer = load_tokenizer(config.tokenizer, config.special_tokens)
        self.documents = zlib.crc32(json.dumps([fingerprint(config.data), identity(tokenizer)]).encode())
        self.start(config.seed)

    def start(self, seed: int) -> None:
        """Begins an order of the documents."""
        self.seed = seed
        datasets = make_datasets(self.config, "train", self.rows, seed)
        self.streams = {row: iter(dataset) for row, dataset in zip(self.rows, datasets, strict=True)}

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return self

    def __next__(self) -> dict[str, np.ndarray]:
        sequences = [next(stream) for stream in self.streams.values()]
        return {name: np.stack([sequence[name] for sequence in sequences]) for name in sequences[0]}

    def to_devices(self, batch: dict[str, np.ndarray]) -> dict[str, Array]:
        """The arrays [batch_size, T] over all processes, of rows as they come from here."""
        shape = self.config.batch_size, self.config.sequence_length

        def part(index: tuple[slice, slice], x: np.ndarray) -> np.ndarray:  # of x [rows, T]
            return x[np.searchsorted(self.rows, range(shape[0])[index[0]])][:, index[1]]

        lay_out = functools.partial(jax.make_array_from_callback, shape, self.sharding)
        return {name: lay_out(functools.partial(part, x=x)) for name, x in batch.items()}

    def get_state(self) -> dict[int, Any]:
        """Where the rows are that this process is the first to hold: each row's state is kept once."""
        rows = self.config.batch_size
        known = {"rows": rows, "seed": self.seed, "documents": self.documents}
        return {row: known | {"stream": self.streams[row].get_state()} for row in self.kept}

    def set_state(self, states: dict[int, Any], step: int) -> None:
        """Goes on from the states of all rows after a step. InputError: they are of data that is not allowed."""
        if {state["rows"] for state in states.values()} != {len(states)}:
            raise ValueError("the states of some rows are missing")
        if {state.get("documents", self.documents) for state in states.values()} != {self.documents}:
            problem = (
                f"--data {self.config.data} --tokenizer {self.config.tokenizer}: not what this run had up to {step}"
            )
            if not self.config.allow_other_data:
                raise InputError(f"{problem}: give the same files and tokenizer, or --allow-other-data")
            print(f"warning: {problem}", file=sys.stderr)
        if len(states) != self.config.batch_size:
            print(f"batch_size was {len(states)}: the documents come in a new order from here on")
            return self.start(self.config.seed + step)
        self.start(states[0]["seed"])
        for row, stream in self.streams.items():
            stream.set_state(states[row]["stream"])


def abstract_batch(config: Config, mesh: Mesh) -> dict[str, jax.ShapeDtypeStruct]:
    """The arrays [batch_size, T] of a batch, rows over the devices, which each microbatch must be a multiple of."""
    parts = config.accumulation * math.prod(mesh.shape[axis] for axis in RULES["batch"])
    if config.batch_size % parts:
        factors = " x ".join(("accumulation", *RULES["batch"]))
        raise InputError(f"--batch-size {config.batch_size}: must be a multiple of {factors}, {parts}")
    dtypes = {name: "int32" for name in ("tokens", "targets", "positions", "segment_ids")} | {"weights": "float32"}
    point("abstract_batch.fields", dtypes)
    layout = NamedSharding(mesh, PartitionSpec(RULES["batch"], RULES["sequence"]))
    shape = config.batch_size, config.sequence_length
    return {name: jax.ShapeDtypeStruct(shape, dtype, sharding=layout) for name, dtype in dtypes.items()}


def held_out_batches(config: Config, rows: list[int]) -> list[dict[str, np.ndarray]]:
    """These rows of the first `eval_batches` batches of "eval", the last one padded; [] without evaluation."""
    if not (config.eval_data or config.eval_share):
        return []
    pad = functools.partial(grain.experimental.batch_and_pad, batch_size=config.batch_size)
    batches = make_datasets(config, "eval")[0].batch(config.batch_size, batch_fn=pad)
    here = batches.map(lambda batch: {name: values[rows] for name, values in batch.items()})
    return list(itertools.islice(here, config.eval_batches))


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
