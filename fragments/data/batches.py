"""Batches of sequences, in which each document is a segment: it attends to itself, and its positions start at 0."""

import functools

import grain
import numpy as np
from jax import Array

from generator.marks import point, provide
from generator.roles import TEXT_BYTES, InputError, load_tokenizer, open_documents


class Config:
    sequence_length: int = 4096  # tokens in one training sequence
    batch_size: int = 8  # sequences in one optimizer step, over all devices


HOLDOUT = 50  # one document in so many is for evaluation, chosen by its number: the same for any number of processes


class Unlist(grain.experimental.FlatMapTransform):
    """Passes the elements of a list on, one by one."""

    def flat_map(self, element: list) -> list:
        return element


def make_dataset(config: Config, split: str, process_index: int = 0, process_count: int = 1) -> grain.IterDataset:
    """The batches of one process: dicts of arrays [batch_size / process_count, sequence_length].

    int32 `tokens`, `targets` (the tokens that follow), `positions` (from 0 in each segment), `segment_ids` (1, 2, ...;
    0 is padding), fp32 `weights` (1 where a target counts). A segment is a document with bos and eos, or a piece of one
    longer than a sequence. "train" never ends: a process reads documents of its own, in a new order each epoch. "eval"
    is one pass, padded to whole batches: a process reads all of it and keeps its rows, so all have as many batches.
    """
    tokenizer, length = load_tokenizer(config.tokenizer), config.sequence_length
    if (known := tokenizer.vocab_size) > (most := config.vocab_size):
        raise InputError(f"tokenizer {config.tokenizer}: its {known} tokens exceed a vocab_size of {most}: raise that")
    if config.batch_size % process_count:
        raise InputError(f"batch_size {config.batch_size}: must be a multiple of the {process_count} processes")
    documents = open_documents(config.data)
    count = len(documents)
    numbers = np.arange(count)
    train = numbers[numbers % HOLDOUT != 0]
    if len(train) < process_count:
        problem = f"{count} documents, of which 1 in {HOLDOUT} is held out, are too few for {process_count} processes"
        raise InputError(f"data {config.data}: {problem}: give more, or a text of more than {TEXT_BYTES} bytes")
    rows = config.batch_size // process_count
    if split == "train":
        order = grain.MapDataset.source(train[process_index::process_count]).seed(config.seed).shuffle().repeat()
        size, start = rows, 0
    else:
        order = grain.MapDataset.source(numbers[::HOLDOUT])
        size, start = config.batch_size, process_index * rows

    def tokenize(number: int) -> list[dict[str, np.ndarray]]:
        tokens = np.array([tokenizer.bos, *tokenizer.encode(documents[number]), tokenizer.eos], np.int32)
        parts = [slice(i, i + length) for i in range(0, len(tokens) - 1, length)]
        return [{"tokens": tokens[:-1][part], "targets": tokens[1:][part]} for part in parts]

    def to_batch(packed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        batch = {"tokens": packed["tokens"], "targets": packed["targets"], "positions": packed["tokens_positions"]}
        batch["segment_ids"] = packed["tokens_segment_ids"]
        batch["weights"] = (batch["segment_ids"] > 0).astype(np.float32)
        return {name: values[start : start + rows] for name, values in batch.items()}

    pieces = order.map(tokenize).to_iter_dataset(grain.ReadOptions(num_threads=8, prefetch_buffer_size=256))
    with point("make_dataset.sequences", pieces, split, length):

        def to_row(piece: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            used = len(piece["tokens"])
            row = piece | {"tokens_positions": np.arange(used), "tokens_segment_ids": np.ones(used, np.int32)}
            return {name: np.pad(values, (0, length - used)) for name, values in row.items()}

        sequences = grain.experimental.FlatMapIterDataset(pieces, Unlist()).map(to_row)
    pad = functools.partial(grain.experimental.batch_and_pad, batch_size=size)
    return sequences.batch(size, batch_fn=pad).map(to_batch)


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
