"""Attention whose heads gate what they read, by a sigmoid of the input.

Source: Qiu et al. 2025, arXiv 2505.06708.
"""

import jax

from generator.language import layers, proceed, splice
from generator.language.roles import Linear


@splice("Attention.query")
def _(self, D, N, H, std, rngs):
    self.query = Linear("BTD,DNGH->BTNGH", (D, N, 2, H), ("embed", "heads", None, "head_size"), std, rngs)


@splice("Attention.queries")
def _(self, x, q):
    query_and_gate = self.query(x)  # [B, T, N, 2, H]
    q, gate = query_and_gate[..., 0, :], query_and_gate[..., 1, :]


@splice("Attention.attend", after="pages attend_nki", before="sequence_parallel")
def _(gate, context):
    proceed()
    context = context * jax.nn.sigmoid(gate)


@splice("flops", before="swiglu dense_layers experts mtp")
def _(parameters, config):
    parameters += layers.count * config.width * config.heads * config.head_size


@splice("hf.query")
def _():
    yield "attention.query.kernel", "model.layers.{}.self_attn.q_proj.weight", "d n g h -> (n g h) d"
