"""Tensors of a checkpoint that hold several parameters, joined along an axis."""

import math

import numpy as np

from generator.marks import setting, splice


class Joined:
    """Views of parameters that are one tensor in a checkpoint; what is assigned to it is in the parameters."""

    def __init__(self, *views: np.ndarray):
        self.views = views
        self.shape = np.concatenate([np.empty(view.shape, bool) for view in views], setting("joined_axis")).shape
        self.size = math.prod(self.shape)

    def __setitem__(self, everything, tensor: np.ndarray) -> None:
        ends = np.cumsum([view.shape[setting("joined_axis")] for view in self.views])
        for view, part in zip(self.views, np.split(tensor, ends[:-1], setting("joined_axis")), strict=True):
            view[everything] = part

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.concatenate(self.views, setting("joined_axis"), dtype=dtype)


@splice("hf.view")
def _(views, tensor, view):
    before = views.get(tensor)
    if isinstance(before, Joined):
        views[tensor] = Joined(*before.views, view)
    else:
        views[tensor] = view if before is None else Joined(before, view)
