"""Fields of batches that have more axes than rows and tokens."""

import numpy as np

from generator.language import splice


@splice("join_pieces.padded")
def _(row, sizes, length, padded):
    end = 0, length - sum(sizes)
    padded = {name: np.pad(values, [end] + [(0, 0)] * (values.ndim - 1)) for name, values in row.items()}


@splice("Batches.values")
def _(self, rows, values):
    values = np.zeros((self.config.batch_size, self.config.sequence_length, *rows.shape[2:]), rows.dtype)
