"""Evaluation in which each process reads the held-out documents of its own rows alone."""

import concurrent.futures
import itertools

import grain
import jax
import numpy as np

from generator.language import requires, splice
from generator.language.roles import Config, Sequences, join_pieces, open_source

requires("cluster/agreement")


def own_batches(config: Config, rows: list[int]) -> list[dict[str, np.ndarray]]:
    """Returns these rows of the batches of an evaluation: each row packs its own documents, and then is padding."""
    source = open_source(config, "eval").map(lambda pieces: (False, pieces))
    length, size = config.sequence_length, config.batch_size
    example = next(pieces for i in range(len(source)) if (pieces := source[i][1]))
    padding = {name: np.zeros_like(values) for name, values in join_pieces(example[:1], length).items()}

    def pack(row: int) -> list[dict[str, np.ndarray]]:
        sequences = Sequences(source[row::size], length)
        sequences.options = grain.ReadOptions(num_threads=0)
        return [join_pieces(pieces, length) for pieces in itertools.islice(sequences, config.eval_batches)]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        packed = list(pool.map(pack, rows))
    # as many in each process, which does not know the rows of others
    count = config.eval_batches if jax.process_count() > 1 else max(map(len, packed))
    filled = [[*batch, *[padding] * (count - len(batch))] for batch in packed]
    return [{name: np.stack([row[i][name] for row in filled]) for name in padding} for i in range(count)]


@splice("held_out_batches.batches")
def _(config, rows, batches):
    batches = own_batches(config, rows)
