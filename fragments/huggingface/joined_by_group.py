"""Tensors of a checkpoint that hold the queries of a key head, the key and the value, key head by key head."""

import numpy as np

from generator.language import excludes, splice

excludes("joined")


class JoinedByGroup:
    """Views [heads, size, ...] of parameters, the last with a head for each group of the others' heads.

    Groups alternate between the parameters in a tensor; assigning to it writes the parameters.
    """

    def __init__(self, *views: np.ndarray):
        self.views = views
        self.groups, *self.inner = views[-1].shape
        self.counts = [len(view) // self.groups for view in views]
        size, *rest = self.inner
        self.shape = self.groups * sum(self.counts) * size, *rest
        self.size = sum(view.size for view in views)

    def __setitem__(self, everything, tensor: np.ndarray) -> None:
        heads = tensor.reshape(self.groups, sum(self.counts), *self.inner)
        parts = np.split(heads, np.cumsum(self.counts)[:-1], axis=1)
        for view, part in zip(self.views, parts, strict=True):
            view[everything] = part.reshape(view.shape)

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        parts = [np.reshape(view, (self.groups, -1, *self.inner)) for view in self.views]
        return np.concatenate(parts, axis=1, dtype=dtype).reshape(self.shape)


@splice("hf.view")
def _(views, tensor, view):
    if tensor in views:
        before = views[tensor]
        view = JoinedByGroup(*getattr(before, "views", (before,)), view)
    views[tensor] = view
