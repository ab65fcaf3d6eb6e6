"""A cache for pure functions: packages have most texts in common, and a process works on each of them once."""

from __future__ import annotations

from functools import lru_cache

# Arguments and results must be immutable in practice: texts, trees and parts of fragments.
cached = lru_cache(maxsize=1 << 19)
