"""An indexer whose pairs for the rotation are x[i] and x[i + P/2], where those of attention are neighbours.

Source: DeepSeek-AI 2025, arXiv 2512.02556, section 2.1 (its released code).
"""

from generator.language import requires, splice

requires("indexer", "rope_interleaved")


@splice("rotate_start.order")
def _(first, size):
    # what is a pair here are neighbours there; no score depends on the order
    first = first.reshape(*first.shape[:-1], 2, size // 2).swapaxes(-1, -2).reshape(first.shape)
