"""Attention with linear biases: a score falls with the distance of query and key, at a slope of each head.

Source: Press et al. 2021, arXiv 2108.12409, section 3.
"""

import functools

import numpy as np

from generator.language import excludes, provide, splice

excludes("attend_cudnn", "attend_splash", "attend_nki")  # whose kernels add no biases to scores
excludes("rope")


def alibi_slopes(heads: int) -> np.ndarray:
    """Returns the slopes of heads, [N]: powers of two from 2^(-8 / N) to 2^-8, where N is a power of two.

    Others have those of the power of two below, then every other one of the power above.
    """
    power = 2 ** (heads.bit_length() - 1)
    exponents = np.arange(1, 2 * power + 1) * 4 / power
    return np.exp2(-np.concatenate([exponents[1::2], exponents[::2]])[:heads]).astype(np.float32)


@splice("Attention.parameters")
def _(self, config):
    self.heads = config.heads


@provide("Attention.__call__")
def slopes(self) -> np.ndarray:
    return alibi_slopes(self.heads)  # [N]


@splice("attend.scores", "attend_cached.scores", optional=True)
def _(scores, distance, slopes):
    scores = scores - slopes[:, None, None] * distance


@splice("test_attention.run", optional=True)
def _(run):
    run = functools.partial(run, slopes=alibi_slopes(4))


@splice("attend_slowly.scores", optional=True)
def _(scores, seen, n, t):
    scores = scores - 4.0 ** -(n + 1) * (t - np.array(seen))
