"""Checkpoints that hold parameters alone, and no buffers."""

from generator.language import splice


@splice("hf.buffers")
def _():
    yield from ()
