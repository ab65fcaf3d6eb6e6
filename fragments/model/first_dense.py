"""Dense feed-forwards in the first layers, experts in the others.

Source: DeepSeek-AI 2024, arXiv 2412.19437, section 4.2.
"""

from generator.language import splice
from generator.language.roles import PositiveInt


class ModelConfig:
    dense_layers: PositiveInt  # layers at the start whose feed-forward is dense


@splice("check_config.together")
def _(config, problems):
    if config.dense_layers >= config.layers:
        problems.append(f"--dense-layers {config.dense_layers}: must be less than --layers {config.layers}")


@splice("hf.sizes")
def _():
    yield "first_k_dense_replace", "dense_layers"
