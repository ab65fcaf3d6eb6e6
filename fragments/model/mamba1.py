"""Mamba in place of attention.

Source: Gu and Dao 2023, arXiv 2312.00752, section 3.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from generator.language import layers, point, splice, threaded
from generator.language.roles import (
    Linear,
    ModelConfig,
    Norm,
    PositiveInt,
    add_bias,
    convolve,
    first_step_bias,
    selective_scan,
    shard,
)


class ModelConfig:
    mamba_expansion: PositiveInt = 2  # channels of the state space, as a multiple of the width
    step_rank: PositiveInt  # size from which the step of each channel is projected
    state_size: PositiveInt  # numbers that the state has for each channel
    convolution_size: PositiveInt = 4  # tokens that a short convolution reads: its own and those before


class Mamba(nnx.Module):
    """Projects to channels, convolves them over tokens, scans states, and projects what gates let through."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        D, M = config.width, config.mamba_expansion * config.width
        R, S, K = config.step_rank, config.state_size, config.convolution_size
        std = config.init_std
        self.value = Linear("BTD,DM->BTM", (D, M), ("embed", "mlp"), std, rngs)
        self.gate = Linear("BTD,DM->BTM", (D, M), ("embed", "mlp"), std, rngs)
        # vectors of a channel: no weight decay
        self.kernel = nnx.Param(std * jax.random.normal(rngs.params(), (K, M)), axes=("norm",))
        self.kernel_bias = nnx.Param(jnp.zeros(M), axes=("norm",))
        self.low_step = Linear("BTM,MR->BTR", (M, R), ("mlp", None), std, rngs)
        self.write = Linear("BTM,MS->BTS", (M, S), ("mlp", None), std, rngs)
        self.read = Linear("BTM,MS->BTS", (M, S), ("mlp", None), std, rngs)
        self.step = Linear("BTR,RM->BTM", (R, M), (None, "mlp"), std, rngs)
        self.step_bias = nnx.Param(first_step_bias(M, rngs), axes=("norm",))
        self.log_rate = nnx.Param(jnp.log(jnp.tile(jnp.arange(1.0, S + 1), (M, 1))), axes=("norm",))
        self.skip = nnx.Param(jnp.ones(M), axes=("norm",))
        self.out = Linear("BTM,MD->BTD", (M, D), ("mlp", "embed"), std, rngs)
        point("Mamba.parameters", config, D, M, R, S, K)

    def __call__(self, x: Array, segment_ids: Array | None = threaded()) -> Array:
        value, gate = checkpoint_name(self.value(x), "up"), checkpoint_name(self.gate(x), "gate")  # [B, T, M]
        with point("Mamba.convolve", value):
            value = convolve(value, self.kernel[...], segment_ids)
        value = jax.nn.silu(add_bias(value, self.kernel_bias[...]))
        low_step, write, read = self.low_step(value), self.write(value), self.read(value)  # [B, T, R], [B, T, S]
        point("Mamba.selection", low_step, write, read)
        step = jax.nn.softplus(self.step(low_step).astype(jnp.float32) + self.step_bias)  # [B, T, M]
        value, write, read = (array.astype(jnp.float32) for array in (value, write, read))
        rate = jnp.exp(self.log_rate[...])  # [M, S]
        with point("Mamba.scan", value, step, rate, write, read):
            empty = jnp.zeros((value.shape[0], *rate.shape), jnp.float32)
            y, _ = selective_scan(value, step, rate, write, read, empty, segment_ids)
        y = ((y + self.skip * value) * jax.nn.silu(gate.astype(jnp.float32))).astype(x.dtype)
        return checkpoint_name(self.out(shard(y, "batch", "sequence", "mlp")), "out")


@splice("Block.mixer")
def _(self, config, rngs):
    self.mamba_norm = Norm(config.width, config.norm_epsilon)
    self.mamba = Mamba(config, rngs)


@splice("Block.normed_attention")
def _(self, x, h):
    h = self.mamba_norm(x)
    h = self.mamba(h)


@splice("flops", before="gated_attention swiglu dense_layers experts mtp")
def _(parameters, config):
    of_channel = 3 * config.width + config.convolution_size + 2 * (config.step_rank + config.state_size)
    of_channel += 2 * config.state_size  # the state is written, and read
    parameters += layers.count * config.mamba_expansion * config.width * of_channel


@splice("hf.layer_tensors")
def _():
    yield "mamba_norm.scale", "model.layers.{}.input_layernorm.weight", "d -> d"
    yield "mamba.value.kernel", "model.layers.{}.mamba.in_proj.weight", "d m -> m d"
    yield "mamba.gate.kernel", "model.layers.{}.mamba.in_proj.weight", "d m -> m d"
    yield "mamba.kernel", "model.layers.{}.mamba.conv1d.weight", "k m -> m 1 k"
    yield "mamba.kernel_bias", "model.layers.{}.mamba.conv1d.bias", "m -> m"
    yield "mamba.low_step.kernel", "model.layers.{}.mamba.x_proj.weight", "m r -> r m"
    yield "mamba.write.kernel", "model.layers.{}.mamba.x_proj.weight", "m s -> s m"
    yield "mamba.read.kernel", "model.layers.{}.mamba.x_proj.weight", "m s -> s m"
    yield "mamba.step.kernel", "model.layers.{}.mamba.dt_proj.weight", "r m -> m r"
    yield "mamba.step_bias", "model.layers.{}.mamba.dt_proj.bias", "m -> m"
    yield "mamba.log_rate", "model.layers.{}.mamba.A_log", "m s -> m s"
    yield "mamba.skip", "model.layers.{}.mamba.D", "m -> m"
    yield "mamba.out.kernel", "model.layers.{}.mamba.out_proj.weight", "m d -> d m"


@splice("hf.complete")
def _(hf):
    if hf.get("mamba_dt_rank", "auto") == "auto":
        hf["mamba_dt_rank"] = -(-hf["hidden_size"] // 16)


@splice("hf.sizes")
def _():
    yield "mamba_expand", "mamba_expansion"
    yield "mamba_dt_rank", "step_rank"
    yield "mamba_d_state", "state_size"
    yield "mamba_d_conv", "convolution_size"


@splice("hf.structure")
def _():
    yield "mamba_conv_bias", True, "a convolution without biases"
    yield "mamba_proj_bias", False, "projections with biases"


@splice("test_adamw.words", optional=True)
def _(words):
    words += ["log_rate", "skip", "mamba.kernel"]
