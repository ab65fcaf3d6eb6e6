"""Biases in the linear maps of experts.

Source: OpenAI 2025, arXiv 2508.10925, in its released code.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from generator.language import splice
from generator.language.roles import of_rows, product


@splice("Experts.parameters")
def _(self, E, F):
    self.gate_bias = nnx.Param(jnp.zeros((E, F)), axes=("expert", "expert_mlp"))
    self.up_bias = nnx.Param(jnp.zeros((E, F)), axes=("expert", "expert_mlp"))


@splice("Experts.gate_up")
def _(self, gate, up):
    # cast after the gather, so that gradients are summed over rows in fp32
    gate = gate + of_rows(self.gate_bias[...], gate).astype(gate.dtype)
    up = up + of_rows(self.up_bias[...], up).astype(up.dtype)


@splice("gather.sent")
def _(p, dtype, sent):
    sent = dtype if len(p.axes) == 3 else p.dtype  # kernels in the dtype of the computation


@splice("MixtureOfExperts.parameters")
def _(self, config):
    self.down_bias = nnx.Param(jnp.zeros((config.experts, config.width)), axes=("expert", None))


@splice("MixtureOfExperts.result")
def _(self, y, weights, chosen):
    # added here, once: the output of experts is a sum over devices that share their inner width
    weight = jnp.sum(weights[..., None] * jax.nn.one_hot(chosen, len(self.down_bias)), axis=-2)  # [B, T, E]
    y = y + product("BTE,ED->BTD", weight.astype(y.dtype), self.down_bias[...])


@splice("hf.layer_tensors")
def _():
    yield "mlp.experts.gate_bias", "model.layers.{}.mlp.experts.gate_up_proj_bias", "e f -> e f"
    yield "mlp.experts.up_bias", "model.layers.{}.mlp.experts.gate_up_proj_bias", "e f -> e f"
    yield "mlp.down_bias", "model.layers.{}.mlp.experts.down_proj_bias", "e d -> e d"


@splice("decays.matrices")
def _(model, matrices):
    # biases of experts are vectors, stacked over experts
    matrices = jax.tree.map(
        lambda p: p.replace(len(set(p.axes) - {"expert"}) > 1), model, is_leaf=lambda p: isinstance(p, nnx.Param)
    )


@splice("with_matrices_in.fp32")
def _(name, is_used_in_fp32):
    is_used_in_fp32 = is_used_in_fp32 or "bias" in name
