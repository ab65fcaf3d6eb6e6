"""The first layers have a dense feed-forward, the others experts.

Source: Dai et al. 2024, arXiv 2401.06066, section 4.1.
"""

from generator.marks import splice


class Config:
    dense_layers: int  # layers at the start whose feed-forward is dense


@splice("hf.sizes")
def _():
    yield "first_k_dense_replace", "dense_layers"


@splice("hf.complete")
def _(hf):
    hf.setdefault("moe_layer_freq", 1)  # the released files say it, transformers does not read it


@splice("hf.structure")
def _():
    yield "moe_layer_freq", 1, "layers of that pattern"
