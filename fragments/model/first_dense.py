"""The first layers have a dense feed-forward, the others experts.

Source: DeepSeek-AI 2024, arXiv 2412.19437, section 4.2.
"""

from generator.marks import requires, splice, sum_layers

requires("feed_forward_width")


class Config:
    dense_layers: int  # layers at the start whose feed-forward is dense


@splice("flops")
def _(products, config):
    products["mlp"] = 3 * sum_layers(1) * config.width * config.mlp_width


@splice("hf.sizes")
def _():
    yield "first_k_dense_replace", "dense_layers"
