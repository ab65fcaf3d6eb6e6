"""Weights in int8, with a scale for each vector."""

import sys

import numpy as np

from generator.language import proceed, splice
from generator.language.roles import in_int8


@splice("ModelSettings.fields")
def _():
    int8: bool = False  # int8 weights


@splice("load_to_serve.start")
def _():
    errors = []  # relative errors of int8 kernels


@splice("load_to_serve.cast")
def _(settings, name, p, is_matrix, value, errors):
    embed_axes = [i - len(p.axes) for i, axis in enumerate(p.axes) if axis and "embed" in axis]
    # those of products with the residual stream, and not of a convolution or of an empty stack
    if settings.int8 and is_matrix and "kernel" in name and embed_axes and value.size:
        kernel = value.astype(np.float32)
        value = in_int8(kernel, embed_axes[0])
        errors.append(np.linalg.norm(value.astype(np.float32) - kernel) / np.linalg.norm(kernel))
    else:
        proceed()


@splice("load_to_serve.loaded")
def _(errors):
    if errors:
        print(f"int8 kernels: relative root-mean-square error {np.mean(errors):.2%}", file=sys.stderr)


@splice("pages_that_fit.remedy")
def _(remedy):
    remedy += ", or give --int8"
