"""Causal self-attention.

Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.2.
"""

from flax import nnx
from jax import Array

from generator.roles import Linear, attend
from generator.marks import point


class Config:
    heads: int  # query heads
    head_size: int  # size of one head


class Attention(nnx.Module):
    """Projects to heads, attends, and projects back to the width of the residual."""

    def __init__(self, config: Config, rngs: nnx.Rngs):
        D, N, K, H = config.width, config.heads, config.kv_heads, config.head_size
        std = config.init_std
        self.query = Linear("BTD,DNH->BTNH", (D, N, H), ("embed", "heads", "head_size"), std, rngs)
        self.key = Linear("BTD,DKH->BTKH", (D, K, H), ("embed", "kv_heads", "head_size"), std, rngs)
        self.value = Linear("BTD,DKH->BTKH", (D, K, H), ("embed", "kv_heads", "head_size"), std, rngs)
        self.out = Linear("BTNH,NHD->BTD", (N, H, D), ("heads", "head_size", "embed"), std, rngs)
        point("Attention.parameters", config, rngs)

    def __call__(self, x: Array) -> Array:
        q = self.query(x)  # [B, T, N, H]
        k = self.key(x)  # [B, T, K, H]
        v = self.value(x)  # [B, T, K, H]
        point("Attention.heads", q, k, v)
        with point("Attention.attend", q, k, v):
            context = attend(q, k, v)  # [B, T, N, H]
        return self.out(context)
