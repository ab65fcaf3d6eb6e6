"""Query, key and value from one product.

Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners" (its released code).
"""

from generator.language import requires, splice
from generator.language.roles import Linear

requires("multi_head")


@splice("Attention.query_key_value")
def _(self, D, N, H, std, rngs):
    axes = ("embed", "query_key_value", "heads", "head_size")
    self.query_key_value = Linear("BTD,DCNH->BTCNH", (D, 3, N, H), axes, std, rngs)


@splice("Attention.project")
def _(self, x, q, k, v):
    heads = self.query_key_value(x)  # [B, T, 3, N, H]
    q, k, v = heads[:, :, 0], heads[:, :, 1], heads[:, :, 2]
