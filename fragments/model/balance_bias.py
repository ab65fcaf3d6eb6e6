"""A bias of each expert for the choice alone, by which experts are kept in balance without a loss for it.

Source: Wang et al. 2024, arXiv 2408.15664; DeepSeek-AI 2024, arXiv 2412.19437, section 2.1.2.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from generator.language import point, splice


@splice("MixtureOfExperts.parameters")
def _(self, config):
    # of the choice alone: its gradient is zero, and the optimizer leaves it as it is
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
    # the bias in fp32 always, as transformers keeps it: few bits would hold no small steps
    kept = "float32" if name.endswith(".e_score_correction_bias") else dtype
    tensors[name] = np.ascontiguousarray(views[name], kept)
