"""Multi-query attention: all query heads share one key and one value head.

Source: Shazeer 2019, arXiv 1911.02150.
"""

from generator.language import excludes

excludes("grouped_queries", "multi_head")


class ModelConfig:
    @property
    def kv_heads(self) -> int:
        """Returns the number of key heads, and of value heads, which all query heads share."""
        return 1
