"""Multi-head attention: each query head has a key and a value head of its own.

Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.2.2.
"""

from generator.language import excludes

excludes("grouped_queries")


class ModelConfig:
    @property
    def kv_heads(self) -> int:
        """Returns the number of query heads: each has a key and a value head."""
        return self.heads
