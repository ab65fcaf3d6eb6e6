"""Mamba-2 in place of attention.

Source: Dao and Gu 2024, arXiv 2405.21060, section 7.
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
    scan_states,
)


class ModelConfig:
    mamba_heads: PositiveInt  # heads of the state space
    mamba_head_size: PositiveInt  # size of one
    mamba_groups: PositiveInt = 1  # groups of heads that write and read at the same places
    state_size: PositiveInt  # numbers that the state has for each one of a head
    convolution_size: PositiveInt = 4  # tokens that a short convolution reads: its own and those before


@splice("check_config.together")
def _(config, problems):
    if config.mamba_heads % config.mamba_groups:
        problems.append(
            f"--mamba-heads {config.mamba_heads}: must be a multiple of --mamba-groups, {config.mamba_groups}"
        )


class Convolution(nnx.Module):
    """Convolves the channels of projected tokens over the last ones, and applies silu."""

    def __init__(self, size: int, channels: tuple[int, ...], std: float, rngs: nnx.Rngs):
        # vectors of a head: no weight decay
        self.kernel = nnx.Param(std * jax.random.normal(rngs.params(), (size, *channels)), axes=("head_size",))
        self.bias = nnx.Param(jnp.zeros(channels), axes=("head_size",))

    def __call__(self, x: Array, segment_ids: Array | None) -> Array:
        return jax.nn.silu(add_bias(convolve(x, self.kernel[...], segment_ids), self.bias[...]))


class Mamba2(nnx.Module):
    """Projects to heads, convolves them over tokens, scans states, and projects what gates let through."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        D, N, H = config.width, config.mamba_heads, config.mamba_head_size
        G, S = config.mamba_groups, config.state_size
        std = config.init_std
        self.gate = Linear("BTD,DNH->BTNH", (D, N, H), ("embed", "heads", "head_size"), std, rngs)
        self.value = Linear("BTD,DNH->BTNH", (D, N, H), ("embed", "heads", "head_size"), std, rngs)
        self.write = Linear("BTD,DGS->BTGS", (D, G, S), ("embed", None, "head_size"), std, rngs)
        self.read = Linear("BTD,DGS->BTGS", (D, G, S), ("embed", None, "head_size"), std, rngs)
        self.step = Linear("BTD,DN->BTN", (D, N), ("embed", "heads"), std, rngs)
        self.value_convolution = Convolution(config.convolution_size, (N, H), std, rngs)
        self.write_convolution = Convolution(config.convolution_size, (G, S), std, rngs)
        self.read_convolution = Convolution(config.convolution_size, (G, S), std, rngs)
        self.step_bias = nnx.Param(first_step_bias(N, rngs), axes=("norm",))
        self.log_rate = nnx.Param(jnp.log(jnp.arange(1.0, N + 1)), axes=("norm",))
        self.skip = nnx.Param(jnp.ones(N), axes=("norm",))
        with point("Mamba2.norm", config, D, N, H, G, S):
            self.epsilon = config.norm_epsilon
            self.norm_scale = nnx.Param(jnp.ones((N, H)), axes=("head_size",))
        self.out = Linear("BTNH,NHD->BTD", (N, H, D), ("heads", "head_size", "embed"), std, rngs)
        point("Mamba2.parameters", config, D, N, H, G, S)

    def __call__(self, x: Array, segment_ids: Array | None = threaded()) -> Array:
        gate, value = checkpoint_name(self.gate(x), "gate"), checkpoint_name(self.value(x), "up")  # [B, T, N, H]
        step = jax.nn.softplus(self.step(x).astype(jnp.float32) + self.step_bias)  # [B, T, N]
        write, read = self.write(x), self.read(x)  # [B, T, G, S]
        with point("Mamba2.convolve", x, value, write, read):
            value = self.value_convolution(value, segment_ids)
            write = self.write_convolution(write, segment_ids)
            read = self.read_convolution(read, segment_ids)
        value = value.astype(jnp.float32)
        B, _, N, H = value.shape
        groups = write.shape[2]
        write = jnp.repeat(write.astype(jnp.float32), N // groups, axis=2)  # [B, T, N, S]
        read = jnp.repeat(read.astype(jnp.float32), N // groups, axis=2)
        with point("Mamba2.scan", value, write, read, step, B, N, H):
            decay = -jnp.exp(self.log_rate[...]) * step
            empty = jnp.zeros((B, N, write.shape[-1], H), jnp.float32)
            y, _ = scan_states(step[..., None] * value, decay, write, read, empty, segment_ids)
        y = (y + self.skip[:, None] * value) * jax.nn.silu(gate.astype(jnp.float32))
        with point("Mamba2.normed", y, groups, B, N, H):
            grouped = y.reshape(*y.shape[:2], groups, -1)
            grouped = grouped * jax.lax.rsqrt(jnp.mean(grouped * grouped, axis=-1, keepdims=True) + self.epsilon)
            y = grouped.reshape(y.shape) * self.norm_scale
        return checkpoint_name(self.out(y.astype(x.dtype)), "out")


@splice("Block.mixer")
def _(self, config, rngs):
    self.mamba_norm = Norm(config.width, config.norm_epsilon)
    self.mamba = Mamba2(config, rngs)


@splice("Block.normed_attention")
def _(self, x, h):
    h = self.mamba_norm(x)
    with point("Block.mamba", h):
        h = self.mamba(h)


@splice("flops", before="gated_attention swiglu gelu_mlp dense_layers experts mtp")
def _(parameters, config):
    inner = config.mamba_heads * config.mamba_head_size
    channels = inner + 2 * config.mamba_groups * config.state_size  # that are convolved
    of_layer = config.width * (2 * inner + channels + config.mamba_heads) + config.convolution_size * channels
    of_layer += 2 * config.state_size * inner  # the state is written, and read
    parameters += layers.count * of_layer


@splice("hf.layer_tensors")
def _():
    yield "mamba_norm.scale", "model.layers.{}.input_layernorm.weight", "d -> d"
    yield "mamba.gate.kernel", "model.layers.{}.mamba.in_proj.weight", "d n h -> (n h) d"
    yield "mamba.value.kernel", "model.layers.{}.mamba.in_proj.weight", "d n h -> (n h) d"
    yield "mamba.write.kernel", "model.layers.{}.mamba.in_proj.weight", "d g s -> (g s) d"
    yield "mamba.read.kernel", "model.layers.{}.mamba.in_proj.weight", "d g s -> (g s) d"
    yield "mamba.step.kernel", "model.layers.{}.mamba.in_proj.weight", "d n -> n d"
    yield "mamba.value_convolution.kernel", "model.layers.{}.mamba.conv1d.weight", "k n h -> (n h) 1 k"
    yield "mamba.write_convolution.kernel", "model.layers.{}.mamba.conv1d.weight", "k g s -> (g s) 1 k"
    yield "mamba.read_convolution.kernel", "model.layers.{}.mamba.conv1d.weight", "k g s -> (g s) 1 k"
    yield "mamba.value_convolution.bias", "model.layers.{}.mamba.conv1d.bias", "n h -> (n h)"
    yield "mamba.write_convolution.bias", "model.layers.{}.mamba.conv1d.bias", "g s -> (g s)"
    yield "mamba.read_convolution.bias", "model.layers.{}.mamba.conv1d.bias", "g s -> (g s)"
    yield "mamba.step_bias", "model.layers.{}.mamba.dt_bias", "n -> n"
    yield "mamba.log_rate", "model.layers.{}.mamba.A_log", "n -> n"
    yield "mamba.skip", "model.layers.{}.mamba.D", "n -> n"
    with point("hf.mamba_norm"):
        yield "mamba.norm_scale", "model.layers.{}.mamba.norm.weight", "n h -> (n h)"
    yield "mamba.out.kernel", "model.layers.{}.mamba.out_proj.weight", "n h d -> d (n h)"


@splice("hf.sizes")
def _():
    yield "mamba_n_heads", "mamba_heads"
    yield "mamba_d_head", "mamba_head_size"
    yield "mamba_n_groups", "mamba_groups"
    yield "mamba_d_state", "state_size"
    yield "mamba_d_conv", "convolution_size"


@splice("hf.structure")
def _():
    yield "mamba_conv_bias", True, "a convolution without biases"
    yield "mamba_proj_bias", False, "projections with biases"


@splice("test_adamw.words", optional=True)
def _(words):
    words += ["log_rate", "skip", "convolution"]
