"""Texts and their trees."""

from __future__ import annotations

from generator.code.syntax import Source
from generator.code.traced import Origin, Traced


def test_equal_texts_share_a_tree_and_keep_their_origins():
    one, other = (Source(Traced.insert("x = 1\n", Origin(path, 7))) for path in ("one.py", "other.py"))
    assert one.module is other.module
    assert (one.where(one.module.body[0]), other.where(other.module.body[0])) == ("one.py:7", "other.py:7")
