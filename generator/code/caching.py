"""What is remembered: packages have most texts in common, and a process weaves each of them once."""

from __future__ import annotations

from functools import lru_cache

# For functions of what never changes: of texts, of trees, and of what fragments say. Their results depend on nothing
# else, and nothing changes them. What was not asked for in a long time is forgotten.
cached = lru_cache(maxsize=1 << 19)
