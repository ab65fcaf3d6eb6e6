"""Tensors of a checkpoint that hold query, key and value, head by head."""

import numpy as np

from generator.language import excludes, splice

excludes("joined")


class JoinedByHead:
    """Views [heads, size, ...] of parameters that alternate in a tensor; assigning to it writes the parameters."""

    def __init__(self, *views: np.ndarray):
        self.views = views
        self.inner = views[0].shape
        heads, size, *rest = self.inner
        self.shape = heads * len(views) * size, *rest
        self.size = sum(view.size for view in views)

    def __setitem__(self, everything, tensor: np.ndarray) -> None:
        heads, *inner = self.inner
        for number, view in enumerate(self.views):
            view[everything] = tensor.reshape(heads, len(self.views), *inner)[:, number]

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.stack(self.views, axis=1, dtype=dtype).reshape(self.shape)


@splice("hf.view")
def _(views, tensor, view):
    if tensor in views:
        before = views[tensor]
        view = JoinedByHead(*getattr(before, "views", (before,)), view)
    views[tensor] = view
