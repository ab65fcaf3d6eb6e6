"""Projections of a delta rule in two tensors of a checkpoint: what belongs to a key head stands together."""

import numpy as np

from generator.language import proceed, requires, splice

requires("joined", "gated_delta_net")


class JoinedByKeyHead:
    """Views of rows that alternate in a tensor, key head by key head; assigning to it writes the parameters."""

    def __init__(self, heads: int, *views: np.ndarray):
        self.views = [view.reshape(heads, -1, view.shape[-1]) for view in views]
        self.size = sum(view.size for view in views)
        self.shape = self.size // views[0].shape[-1], views[0].shape[-1]

    def __setitem__(self, everything, tensor: np.ndarray) -> None:
        ends = np.cumsum([view.shape[1] for view in self.views])
        by_head = tensor.reshape(len(self.views[0]), ends[-1], -1)
        for view, part in zip(self.views, np.split(by_head, ends[:-1], axis=1), strict=True):
            view[everything] = part

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.concatenate(self.views, axis=1, dtype=dtype).reshape(self.shape)


@splice("hf.joined")
def _(tensor, before, view, config):
    if ".in_proj_" in tensor:
        view = JoinedByKeyHead(config.delta_key_heads, *getattr(before, "views", (before,)), view)
    else:
        proceed()
