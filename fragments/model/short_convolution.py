"""Gated short convolution in place of attention.

Source: Liquid AI 2025, arXiv 2511.23404, section 2 (the double-gated short convolution of LFM2).
"""

import jax
from flax import nnx
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from generator.language import layers, point, splice, threaded
from generator.language.roles import Linear, ModelConfig, Norm, PositiveInt, convolve, shard


class ModelConfig:
    convolution_size: PositiveInt = 3  # tokens that a short convolution reads: its own and those before


class ShortConvolution(nnx.Module):
    """Computes out(gate_out(x) * convolve(gate_in(x) * value(x)))."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        D, S, std = config.width, config.convolution_size, config.init_std
        self.gates = Linear("BTD,DGM->BTGM", (D, 3, D), ("embed", None, "mlp"), std, rngs)
        self.kernel = nnx.Param(std * jax.random.normal(rngs.params(), (S, D)), axes=(None, "mlp"))
        self.out = Linear("BTM,MD->BTD", (D, D), ("mlp", "embed"), std, rngs)

    def __call__(self, x: Array, segment_ids: Array | None = threaded()) -> Array:
        gates = checkpoint_name(self.gates(x), "gate")  # [B, T, 3, M]
        gate_in, gate_out, value = gates[:, :, 0], gates[:, :, 1], gates[:, :, 2]
        inputs = gate_in * value
        with point("ShortConvolution.convolve", inputs):
            convolved = convolve(inputs, self.kernel[...], segment_ids)
        y = gate_out * convolved
        return checkpoint_name(self.out(shard(y, "batch", "sequence", "mlp")), "out")


@splice("Block.mixer")
def _(self, config, rngs):
    self.convolution_norm = Norm(config.width, config.norm_epsilon)
    self.convolution = ShortConvolution(config, rngs)


@splice("Block.normed_attention")
def _(self, x, h):
    h = self.convolution_norm(x)
    h = self.convolution(h)


@splice("flops", before="swiglu dense_layers experts mtp")
def _(parameters, config):
    parameters += layers.count * config.width * (4 * config.width + config.convolution_size)


@splice("hf.layer_tensors")
def _():
    yield "convolution_norm.scale", "model.layers.{}.operator_norm.weight", "d -> d"
    yield "convolution.gates.kernel", "model.layers.{}.conv.in_proj.weight", "d g c -> (g c) d"
    yield "convolution.kernel", "model.layers.{}.conv.conv.weight", "s c -> c 1 s"
    yield "convolution.out.kernel", "model.layers.{}.conv.out_proj.weight", "c d -> d c"


@splice("hf.sizes")
def _():
    yield "conv_L_cache", "convolution_size"


@splice("hf.structure")
def _():
    yield "conv_bias", False, "a convolution with biases"
