"""Tensors of a checkpoint that hold several parameters, concatenated along the first axis."""

import numpy as np

from generator.language import point, splice


class Joined:
    """Views of parameters that are one tensor in a checkpoint; assigning to it writes the parameters."""

    def __init__(self, *views: np.ndarray):
        self.views = views
        self.shape = sum(len(view) for view in views), *views[0].shape[1:]
        self.size = sum(view.size for view in views)

    def __setitem__(self, everything, tensor: np.ndarray) -> None:
        ends = np.cumsum([len(view) for view in self.views])
        for view, part in zip(self.views, np.split(tensor, ends[:-1]), strict=True):
            view[everything] = part

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.concatenate(self.views, dtype=dtype)


@splice("hf.view")
def _(views, tensor, view, config):
    if tensor in views:
        before = views[tensor]
        with point("hf.joined", tensor, before, view, config):
            view = Joined(*getattr(before, "views", (before,)), view)
    views[tensor] = view
