"""Clips what attention sees."""

from generator.language import proceed, splice


class Config:
    # a value above it
    # counts as much
    limit: float = 10.0

    @property
    def clips(self) -> bool:
        return self.limit < float("inf")


@splice("Block.scaled", after="positions")
def _(h):
    h = [min(value, LIMIT) for value in h]


@splice("Block.attend")
def _(h):
    if any(h):
        proceed()


LIMIT = 10.0
