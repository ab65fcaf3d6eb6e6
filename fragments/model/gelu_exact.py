"""GELU by the error function in a feed-forward without a gate.

Source: Hendrycks and Gimpel 2016, arXiv 1606.08415, section 2.
"""

import jax

from generator.language import splice


@splice("FeedForward.activation")
def _(up, h):
    h = jax.nn.gelu(up, approximate=False)
