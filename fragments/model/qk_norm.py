"""Norms on query and key heads.

Source: Dehghani et al. 2023, arXiv 2302.05442, section 3.1.
"""

from generator.language import point, splice
from generator.language.roles import Norm


@splice("Attention.parameters")
def _(self, config):
    with point("Attention.query_key_norms", config):
        self.query_norm = Norm(config.head_size, config.norm_epsilon)
        self.key_norm = Norm(config.head_size, config.norm_epsilon)


@splice("Attention.heads", before="rope")
def _(self, q, k):
    with point("Attention.normed_heads", q, k):
        q, k = self.query_norm(q), self.key_norm(k)


@splice("hf.layer_tensors")
def _():
    yield "attention.query_norm.scale", "model.layers.{}.self_attn.q_norm.weight", "h -> h"
    yield "attention.key_norm.scale", "model.layers.{}.self_attn.k_norm.weight", "h -> h"
