"""Auxiliary-loss-free load balancing: a bias for each expert, which affects only the choice of experts.

Source: Wang et al. 2024, arXiv 2408.15664; DeepSeek-AI 2024, arXiv 2412.19437, section 2.1.2.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from generator.language import point, setting, splice


@splice("MixtureOfExperts.parameters")
def _(self, config):
    # affects only the choice: its gradient is zero, so the optimizer does not change it
    self.balance_bias = nnx.Param(jnp.zeros(config.experts), axes=(None,))


@splice("MixtureOfExperts.choice")
def _(self, scores, weights, chosen):
    ranks = scores + self.balance_bias
    point("MixtureOfExperts.ranks", ranks)
    _, chosen = jax.lax.top_k(ranks, self.active)  # [B, T, A]: the experts of each token
    weights = jnp.take_along_axis(scores, chosen, axis=-1)  # [B, T, A]


@splice("hf.layer_tensors")
def _():
    yield "mlp.balance_bias", "model.layers.{}.mlp.gate.e_score_correction_bias", "e -> e"


@splice("hf.saved")
def _(tensors, name, views, dtype):
    # always in fp32, as in transformers: 16 bits would lose small updates
    kept = "float32" if name.endswith(setting("balance_bias")) else dtype
    tensors[name] = np.ascontiguousarray(views[name], kept)
