"""Sharding by named logical axes."""


def shard(x, *axes):
    """Lays out."""
    return x
