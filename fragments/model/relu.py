"""ReLU in a feed-forward without a gate.

Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.3.
"""

import jax

from generator.language import splice


@splice("FeedForward.activation")
def _(up, h):
    h = jax.nn.relu(up)
