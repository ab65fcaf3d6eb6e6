"""Kimi Delta Attention: a delta rule whose state forgets at a rate of each channel and token, in place of attention.

Source: Kimi Team 2025, arXiv 2510.26692, section 4.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from generator.language import layers, point, splice, threaded
from generator.language.roles import Linear, ModelConfig, Norm, PositiveInt, convolve, gated_delta_rule, unit


class ModelConfig:
    delta_heads: PositiveInt  # heads of the delta rule
    delta_head_size: PositiveInt  # size of a key, of a value, and of what decays and gates are projected from
    convolution_size: PositiveInt = 4  # tokens that a short convolution reads: its own and those before


class KimiDeltaAttention(nnx.Module):
    """Projects to heads, convolves them over tokens, applies the delta rule, and projects a gated norm back."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        self.epsilon = config.norm_epsilon
        D, N, H, S = config.width, config.delta_heads, config.delta_head_size, config.convolution_size
        std = config.init_std
        axes = "embed", "heads", "head_size"
        self.query = Linear("BTD,DNH->BTNH", (D, N, H), axes, std, rngs)
        self.key = Linear("BTD,DNH->BTNH", (D, N, H), axes, std, rngs)
        self.value = Linear("BTD,DNH->BTNH", (D, N, H), axes, std, rngs)
        self.beta = Linear("BTD,DN->BTN", (D, N), ("embed", "heads"), std, rngs)
        self.step_latent = Linear("BTD,DR->BTR", (D, H), ("embed", "latent"), std, rngs)
        self.step = Linear("BTR,RNH->BTNH", (H, N, H), ("latent", "heads", "head_size"), std, rngs)
        self.gate_latent = Linear("BTD,DR->BTR", (D, H), ("embed", "latent"), std, rngs)
        self.gate = Linear("BTR,RNH->BTNH", (H, N, H), ("latent", "heads", "head_size"), std, rngs)
        # vectors of a head: no weight decay
        self.query_kernel = nnx.Param(std * jax.random.normal(rngs.params(), (S, N, H)), axes=("head_size",))
        self.key_kernel = nnx.Param(std * jax.random.normal(rngs.params(), (S, N, H)), axes=("head_size",))
        self.value_kernel = nnx.Param(std * jax.random.normal(rngs.params(), (S, N, H)), axes=("head_size",))
        step = jnp.exp(jax.random.uniform(rngs.params(), (N, H), minval=jnp.log(1e-3), maxval=jnp.log(1e-1)))
        self.step_bias = nnx.Param(jnp.log(jnp.expm1(step)), axes=("head_size",))  # softplus gives the step
        self.log_rate = nnx.Param(jnp.log(jax.random.uniform(rngs.params(), (N,), minval=1, maxval=16)), axes=("norm",))
        self.norm_scale = nnx.Param(jnp.ones(H), axes=("norm",))
        self.out = Linear("BTNH,NHD->BTD", (N, H, D), ("heads", "head_size", "embed"), std, rngs)

    def __call__(self, x: Array, segment_ids: Array | None = threaded()) -> Array:
        q, k = checkpoint_name(self.query(x), "query"), checkpoint_name(self.key(x), "key_value")  # [B, T, N, H]
        v = checkpoint_name(self.value(x), "key_value")
        gate = checkpoint_name(self.gate(self.gate_latent(x)), "gate")
        step = jax.nn.softplus(self.step(self.step_latent(x)).astype(jnp.float32) + self.step_bias)
        decay = -jnp.exp(self.log_rate[:, None]) * step  # [B, T, N, H]
        beta = jax.nn.sigmoid(self.beta(x).astype(jnp.float32))  # [B, T, N]
        with point("DeltaNet.convolve", q, k, v):
            q = convolve(q, self.query_kernel[...], segment_ids)
            k = convolve(k, self.key_kernel[...], segment_ids)
            v = convolve(v, self.value_kernel[...], segment_ids)
        q = unit(jax.nn.silu(q)) * q.shape[-1] ** -0.5
        k = unit(jax.nn.silu(k))
        v = jax.nn.silu(v).astype(jnp.float32)
        with point("DeltaNet.read", q, k, v, decay, beta):
            B, _, N, H = q.shape
            empty = jnp.zeros((B, N, H, H), jnp.float32)
            y, _ = gated_delta_rule(q, k, v, decay, beta, empty, segment_ids)  # [B, T, N, H]
        y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + self.epsilon) * self.norm_scale
        y = (y * jax.nn.sigmoid(gate.astype(jnp.float32))).astype(x.dtype)
        return checkpoint_name(self.out(y), "out")


@splice("Block.mixer")
def _(self, config, rngs):
    self.delta_norm = Norm(config.width, config.norm_epsilon)
    self.delta = KimiDeltaAttention(config, rngs)


@splice("Block.normed_attention")
def _(self, x, h):
    h = self.delta_norm(x)
    h = self.delta(h)


@splice("flops", before="swiglu dense_layers experts mtp")
def _(parameters, config):
    heads = config.delta_heads * config.delta_head_size
    of_layer = config.width * (4 * heads + config.delta_heads + 2 * config.delta_head_size)
    of_layer += 2 * config.delta_head_size * heads  # of what decays and gates are projected from
    of_layer += 3 * config.convolution_size * heads
    of_layer += 3 * config.delta_head_size * heads  # the state is read twice, and written
    parameters += layers.count * of_layer


@splice("hf.layer_tensors")
def _():
    yield "delta_norm.scale", "model.layers.{}.input_layernorm.weight", "d -> d"
    yield "delta.query.kernel", "model.layers.{}.self_attn.q_proj.weight", "d n h -> (n h) d"
    yield "delta.key.kernel", "model.layers.{}.self_attn.k_proj.weight", "d n h -> (n h) d"
    yield "delta.value.kernel", "model.layers.{}.self_attn.v_proj.weight", "d n h -> (n h) d"
    yield "delta.beta.kernel", "model.layers.{}.self_attn.b_proj.weight", "d n -> n d"
    yield "delta.step_latent.kernel", "model.layers.{}.self_attn.f_a_proj.weight", "d r -> r d"
    yield "delta.step.kernel", "model.layers.{}.self_attn.f_b_proj.weight", "r n h -> (n h) r"
    yield "delta.gate_latent.kernel", "model.layers.{}.self_attn.g_a_proj.weight", "d r -> r d"
    yield "delta.gate.kernel", "model.layers.{}.self_attn.g_b_proj.weight", "r n h -> (n h) r"
    yield "delta.query_kernel", "model.layers.{}.self_attn.q_conv1d.weight", "s n h -> (n h) 1 s"
    yield "delta.key_kernel", "model.layers.{}.self_attn.k_conv1d.weight", "s n h -> (n h) 1 s"
    yield "delta.value_kernel", "model.layers.{}.self_attn.v_conv1d.weight", "s n h -> (n h) 1 s"
    yield "delta.step_bias", "model.layers.{}.self_attn.dt_bias", "n h -> (n h)"
    yield "delta.log_rate", "model.layers.{}.self_attn.A_log", "n -> 1 1 n 1"
    yield "delta.norm_scale", "model.layers.{}.self_attn.o_norm.weight", "h -> h"
    yield "delta.out.kernel", "model.layers.{}.self_attn.o_proj.weight", "n h d -> d (n h)"


@splice("hf.sizes")
def _():
    yield "linear_num_heads", "delta_heads"
    yield "linear_head_dim", "delta_head_size"
    yield "linear_conv_kernel_dim", "convolution_size"


@splice("test_adamw.words", optional=True)
def _(words):
    words += ["log_rate", "step_bias", "query_kernel", "key_kernel", "value_kernel"]
