"""xIELU's constants, which checkpoints hold beside its parameters."""

import numpy as np

from generator.language import proceed, requires, splice
from generator.language.roles import HIGHEST, SLOPE, InputError

requires("xielu")


class Constant:
    """A number that a checkpoint holds and the model's code has; assigning another one raises InputError."""

    shape = ()
    size = 1

    def __init__(self, name: str, value: float):
        self.name, self.value = name, value

    def __setitem__(self, everything, tensor: np.ndarray) -> None:
        if tensor != np.asarray(self.value, tensor.dtype):
            raise InputError(f"{self.name} is {tensor}, and this package is for {self.value}: use another checkpoint")

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.array(self.value, dtype)


@splice("hf.view")
def _(views, tensor):
    proceed()
    if tensor.endswith(".alpha_p"):
        for suffix, value in ("beta", SLOPE), ("eps", HIGHEST):
            constant = tensor.replace("alpha_p", suffix)
            views[constant] = Constant(constant, value)


@splice("hf.buffers")
def _():
    yield ".act_fn.beta"
    yield ".act_fn.eps"


@splice("hf.saved")
def _(tensors, name, views):
    proceed()
    tensors[name] = tensors[name].reshape(views[name].shape)  # numpy makes a constant an array of one number
