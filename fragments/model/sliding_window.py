"""Sliding-window attention: a token sees only the nearest tokens before it.

Source: Beltagy et al. 2020, arXiv 2004.05150, section 3.1.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.tpu import splash_attention as splash

from generator.language import layers, proceed, provide, setting, splice
from generator.language.roles import UNSEEN, PositiveInt

EVERYTHING = 2**30  # the window of a layer with full attention


class ModelConfig:
    window: PositiveInt  # tokens that a token sees, including itself


def window_layers(config: ModelConfig) -> np.ndarray:
    """Returns whether each layer has a window, [L], in the order of the scans."""
    counts = jax.tree.leaves(layers.stacked(lambda group: group.count))
    windows = jax.tree.leaves(layers.stacked(lambda group: group.window))
    return np.repeat(np.array(windows) < EVERYTHING, counts)


def window_size(config: ModelConfig) -> int:
    """Returns how many tokens a token sees in a layer with a window, including itself."""
    return config.window


def window_start(config: ModelConfig, position: int) -> int:
    """Returns the first position that a token at `position` sees in a layer with a window."""
    return max(position - config.window + 1, 0)


@splice("Attention.parameters")
def _(self, window):
    self.window = window


@provide("Attention.__call__")
def window(self) -> int:
    return self.window


@splice("attend.mask", "attend_cached.mask", optional=True)
def _(visible, distance, window):
    visible = visible & (distance < window)


@splice("attend_tiles.tiles", optional=True)
def _(tiles, S, window):
    tiles = [(i, j) for i, j in tiles if i - (j + S - 1) < window]  # its first query sees its last key


@splice("attend_cached.loop", optional=True)
def _(add_block, sums, blocks, before, n, pages, total, context, window):
    if setting("read_to_the_end"):
        proceed()
    else:
        oldest = jnp.min(before, where=before >= 0, initial=UNSEEN) - window + 1  # first place in sight
        first = jnp.maximum(oldest, 0) // (n * pages.key.shape[2])
        total, context = jax.lax.fori_loop(first, blocks, add_block, sums)[1:]


@splice("attend_cached.ends", optional=True)
def _(cached, before, S, ends, window):
    ends = jnp.cumsum(cached - jnp.maximum(before - window + 1, 0) // S)  # without pages that no token sees


@splice("attend_token.first", optional=True)
def _(first, before, window):
    first = jnp.maximum(first, before - window + 1)


@splice("attend_splash.causal", optional=True)
def _(mask, T, padding, window):
    mask = splash.LocalMask((T + padding, T + padding), (window - 1, 0), offset=0)


@splice("attend_cudnn.options", optional=True)
def _(options, q, window):
    options["local_window_size"] = min(window, q.shape[1]) - 1, 0


@splice("attend_packed.first")
def _(first, t, window):
    first = jnp.maximum(first, t - window + 1)


@splice("test_attention.run", "test_packed_attention.run", "test_pages_kernel.run", optional=True)
def _(run):
    run = functools.partial(run, window=5)


@splice("attend_slowly.seen", optional=True)
def _(seen, t):
    seen = [s for s in seen if t - s < 5]


@splice("attend_at_once.seen", optional=True)
def _(seen, distance):
    seen = seen & (distance < 5)


@splice("flops.keys")
def _(keys, config):
    length = config.sequence_length  # below: twice the mean number of keys, as full FLOPs count the future
    keys = layers.sum(lambda layer: min(layer.window, length) * (2 - min(layer.window, length) / length))


@splice("hf.sizes")
def _():
    yield "sliding_window", "window"
