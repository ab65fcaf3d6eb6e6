"""Arrays that are read when they are needed."""

from collections.abc import Callable

import jax
import numpy as np


class LazyArray:
    """An array that `read(name)` reads whenever NumPy asks for it: a model may be larger than memory."""

    def __init__(self, struct: jax.ShapeDtypeStruct, read: Callable[[str], np.ndarray], name: str):
        self.shape, self.dtype, self.size = struct.shape, struct.dtype, struct.size
        self.read, self.name = read, name

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return self.read(self.name)
