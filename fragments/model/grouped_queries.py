"""Grouped-query attention: several query heads share a key and a value head.

Source: Ainslie et al. 2023, arXiv 2305.13245.
"""


class Config:
    kv_heads: int  # key and value heads, each shared by heads / kv_heads query heads
