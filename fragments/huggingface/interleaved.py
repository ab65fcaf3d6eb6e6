"""Tensors of a checkpoint that hold two parameters, interleaved along the last axis."""

import numpy as np

from generator.language import excludes, splice

excludes("joined")


class Interleaved:
    """Views of two parameters that are one tensor in a checkpoint; assigning to it writes the parameters."""

    def __init__(self, even: np.ndarray, odd: np.ndarray):
        self.even, self.odd = even, odd
        self.shape = *even.shape[:-1], 2 * even.shape[-1]
        self.size = 2 * even.size

    def __setitem__(self, everything, tensor: np.ndarray) -> None:
        self.even[everything], self.odd[everything] = tensor[..., ::2], tensor[..., 1::2]

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.stack([self.even, self.odd], axis=-1, dtype=dtype).reshape(self.shape)


@splice("hf.view")
def _(views, tensor, view):
    views[tensor] = Interleaved(views[tensor], view) if tensor in views else view
