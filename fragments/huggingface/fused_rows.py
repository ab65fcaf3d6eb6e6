"""All experts of a layer in one tensor of a checkpoint, the rows of each its gate's and then its up's."""

import numpy as np

from generator.language import requires, splice
from generator.language.roles import Joined

requires("joined")


class JoinedRows:
    """Joins views of parameters along their second axis: a `Joined` with that axis moved to the front."""

    def __init__(self, *views: np.ndarray):
        self.joined = Joined(*(view.swapaxes(0, 1) for view in views))
        rows, experts, *columns = self.joined.shape
        self.shape = experts, rows, *columns
        self.size = self.joined.size

    def __setitem__(self, everything, tensor: np.ndarray) -> None:
        self.joined[everything] = tensor.swapaxes(0, 1)

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.asarray(self.joined, dtype).swapaxes(0, 1)


@splice("hf.joined")
def _(before, view):
    view = JoinedRows(before, view)
