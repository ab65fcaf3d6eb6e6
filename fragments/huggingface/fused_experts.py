"""All experts of a layer in one tensor of a checkpoint, each with its gate and up concatenated."""

import numpy as np

from generator.language import requires, splice
from generator.language.roles import Joined

requires("joined")


class JoinedLast:
    """Joins views of parameters along their last axis: a `Joined` with that axis moved to the front."""

    def __init__(self, *views: np.ndarray):
        self.joined = Joined(*(np.moveaxis(view, -1, 0) for view in views))
        self.shape = *self.joined.shape[1:], self.joined.shape[0]
        self.size = self.joined.size

    def __setitem__(self, everything, tensor: np.ndarray) -> None:
        self.joined[everything] = np.moveaxis(tensor, -1, 0)

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.moveaxis(np.asarray(self.joined, dtype), 0, -1)


@splice("hf.joined")
def _(before, view):
    view = JoinedLast(before, view)
