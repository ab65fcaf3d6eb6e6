"""GELU, approximated by tanh, as the activation of the gates of experts.

Source: Shazeer 2020, arXiv 2002.05202; Hendrycks and Gimpel 2016, arXiv 1606.08415, section 2.
"""

import jax

from generator.language import splice


@splice("Experts.activation")
def _(gate, up, h):
    h = jax.nn.gelu(gate) * up
