"""Gated delta net in place of attention.

Source: Yang et al. 2024, arXiv 2412.06464, section 3.4.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from generator.language import layers, point, splice, threaded
from generator.language.roles import Linear, ModelConfig, Norm, PositiveInt, convolve, gated_delta_rule, unit


class ModelConfig:
    delta_key_heads: PositiveInt  # heads of queries and keys of the delta rule
    delta_value_heads: PositiveInt  # heads of its values: a multiple, of which several share a key
    delta_key_size: PositiveInt  # size of a key
    delta_value_size: PositiveInt  # size of a value
    convolution_size: PositiveInt = 4  # tokens that a short convolution reads: its own and those before


@splice("check_config.together")
def _(config, problems):
    if config.delta_value_heads % config.delta_key_heads:
        problems.append(
            f"--delta-value-heads {config.delta_value_heads}: must be a multiple of --delta-key-heads, "
            f"{config.delta_key_heads}"
        )


class GatedDeltaNet(nnx.Module):
    """Projects to heads, convolves them over tokens, applies the delta rule, and projects a gated norm back."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        with point("GatedDeltaNet.epsilon", config):
            self.epsilon = config.norm_epsilon
        D, K, N, H, V = (
            config.width,
            config.delta_key_heads,
            config.delta_value_heads,
            config.delta_key_size,
            config.delta_value_size,
        )
        S, std = config.convolution_size, config.init_std
        self.query = Linear("BTD,DKH->BTKH", (D, K, H), ("embed", "heads", "head_size"), std, rngs)
        self.key = Linear("BTD,DKH->BTKH", (D, K, H), ("embed", "heads", "head_size"), std, rngs)
        self.value = Linear("BTD,DNV->BTNV", (D, N, V), ("embed", "heads", "head_size"), std, rngs)
        self.gate = Linear("BTD,DNV->BTNV", (D, N, V), ("embed", "heads", "head_size"), std, rngs)
        self.beta = Linear("BTD,DN->BTN", (D, N), ("embed", "heads"), std, rngs)
        self.step = Linear("BTD,DN->BTN", (D, N), ("embed", "heads"), std, rngs)
        # vectors of a head: no weight decay
        self.query_kernel = nnx.Param(std * jax.random.normal(rngs.params(), (S, K, H)), axes=("head_size",))
        self.key_kernel = nnx.Param(std * jax.random.normal(rngs.params(), (S, K, H)), axes=("head_size",))
        self.value_kernel = nnx.Param(std * jax.random.normal(rngs.params(), (S, N, V)), axes=("head_size",))
        self.step_bias = nnx.Param(jnp.ones(N), axes=("norm",))
        self.log_rate = nnx.Param(
            jnp.log(jax.random.uniform(rngs.params(), (N,), minval=0.01, maxval=16)), axes=("norm",)
        )
        self.norm_scale = nnx.Param(jnp.ones(V), axes=("norm",))
        self.out = Linear("BTNV,NVD->BTD", (N, V, D), ("heads", "head_size", "embed"), std, rngs)

    def __call__(self, x: Array, segment_ids: Array | None = threaded()) -> Array:
        q, k = checkpoint_name(self.query(x), "query"), checkpoint_name(self.key(x), "key_value")  # [B, T, K, H]
        v = checkpoint_name(self.value(x), "key_value")  # [B, T, N, V]
        gate = checkpoint_name(self.gate(x), "gate")
        beta = jax.nn.sigmoid(self.beta(x).astype(jnp.float32))  # [B, T, N]
        step = jax.nn.softplus(self.step(x).astype(jnp.float32) + self.step_bias)
        decay = -jnp.exp(self.log_rate[...]) * step
        with point("DeltaNet.convolve", q, k, v):
            q = convolve(q, self.query_kernel[...], segment_ids)
            k = convolve(k, self.key_kernel[...], segment_ids)
            v = convolve(v, self.value_kernel[...], segment_ids)
        q = unit(jax.nn.silu(q)) * q.shape[-1] ** -0.5
        k = unit(jax.nn.silu(k))
        v = jax.nn.silu(v).astype(jnp.float32)
        repeats = v.shape[2] // k.shape[2]
        q, k = jnp.repeat(q, repeats, axis=2), jnp.repeat(k, repeats, axis=2)
        with point("DeltaNet.read", q, k, v, decay, beta):
            B, _, N, H = q.shape
            empty = jnp.zeros((B, N, H, v.shape[-1]), jnp.float32)
            y, _ = gated_delta_rule(q, k, v, decay, beta, empty, segment_ids)  # [B, T, N, V]
        y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + self.epsilon) * self.norm_scale
        y = (y * jax.nn.silu(gate.astype(jnp.float32))).astype(x.dtype)
        return checkpoint_name(self.out(y), "out")


@splice("Block.mixer")
def _(self, config, rngs):
    self.delta_norm = Norm(config.width, config.norm_epsilon)
    self.delta = GatedDeltaNet(config, rngs)


@splice("Block.normed_attention")
def _(self, x, h):
    h = self.delta_norm(x)
    h = self.delta(h)


@splice("flops", before="gated_attention swiglu dense_layers experts mtp")
def _(parameters, config):
    keys = config.delta_key_heads * config.delta_key_size
    values = config.delta_value_heads * config.delta_value_size
    of_layer = config.width * (2 * keys + 3 * values + 2 * config.delta_value_heads)
    of_layer += config.convolution_size * (2 * keys + values)
    of_layer += 3 * config.delta_key_size * values  # the state is read twice, and written
    parameters += layers.count * of_layer


@splice("hf.layer_tensors")
def _():
    yield "delta_norm.scale", "model.layers.{}.input_layernorm.weight", "d -> d"
    with point("hf.delta_inputs"):
        yield "delta.query.kernel", "model.layers.{}.linear_attn.in_proj_qkv.weight", "d k h -> (k h) d"
        yield "delta.key.kernel", "model.layers.{}.linear_attn.in_proj_qkv.weight", "d k h -> (k h) d"
        yield "delta.value.kernel", "model.layers.{}.linear_attn.in_proj_qkv.weight", "d n v -> (n v) d"
        yield "delta.gate.kernel", "model.layers.{}.linear_attn.in_proj_z.weight", "d n v -> (n v) d"
        yield "delta.beta.kernel", "model.layers.{}.linear_attn.in_proj_b.weight", "d n -> n d"
        yield "delta.step.kernel", "model.layers.{}.linear_attn.in_proj_a.weight", "d n -> n d"
    yield "delta.query_kernel", "model.layers.{}.linear_attn.conv1d.weight", "s k h -> (k h) 1 s"
    yield "delta.key_kernel", "model.layers.{}.linear_attn.conv1d.weight", "s k h -> (k h) 1 s"
    yield "delta.value_kernel", "model.layers.{}.linear_attn.conv1d.weight", "s n v -> (n v) 1 s"
    yield "delta.step_bias", "model.layers.{}.linear_attn.dt_bias", "n -> n"
    yield "delta.log_rate", "model.layers.{}.linear_attn.A_log", "n -> n"
    yield "delta.norm_scale", "model.layers.{}.linear_attn.norm.weight", "v -> v"
    yield "delta.out.kernel", "model.layers.{}.linear_attn.out_proj.weight", "n v d -> d (n v)"


@splice("hf.sizes")
def _():
    yield "linear_num_key_heads", "delta_key_heads"
    yield "linear_num_value_heads", "delta_value_heads"
    yield "linear_key_head_dim", "delta_key_size"
    yield "linear_value_head_dim", "delta_value_size"
    yield "linear_conv_kernel_dim", "convolution_size"


@splice("test_adamw.words", optional=True)
def _(words):
    words += ["log_rate", "query_kernel", "key_kernel", "value_kernel"]
