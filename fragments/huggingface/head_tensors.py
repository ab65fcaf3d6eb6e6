"""Parameters of heads whose checkpoints have a tensor for each head."""

import numpy as np
from einops import rearrange

from generator.language import excludes, proceed, splice

excludes("experts")  # whose checkpoints have a tensor for each expert


@splice("hf.layer")
def _(name, values):
    for head in np.ndindex(values.shape[: name.count("{}") - 1]):
        proceed()


@splice("hf.tensor")
def _(name, layer, values, layout, head, tensor, view):
    tensor = name.format(layer, *head)
    view = rearrange(values[head], layout)
