"""Attention of which config.json says neither the size of a head nor whether there are biases."""

from generator.language import splice


@splice("hf.attention_bias")
def _():
    pass


@splice("hf.export")
def _(hf):
    del hf["head_dim"]
