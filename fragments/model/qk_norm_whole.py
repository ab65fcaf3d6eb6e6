"""Norms over the whole query and the whole key, across heads.

Source: Muennighoff et al. 2024, arXiv 2409.02060, section 4.2.4.
"""

from generator.language import requires, splice
from generator.language.roles import Norm

requires("qk_norm")


@splice("Attention.query_key_norms")
def _(self, config):
    self.query_norm = Norm(config.heads * config.head_size, config.norm_epsilon)
    self.key_norm = Norm(config.kv_heads * config.head_size, config.norm_epsilon)


@splice("Attention.normed_heads")
def _(self, q, k):
    B, T, _, H = q.shape
    q = self.query_norm(q.reshape(B, T, -1)).reshape(B, T, -1, H)
    k = self.key_norm(k.reshape(B, T, -1)).reshape(B, T, -1, H)
