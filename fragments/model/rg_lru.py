"""A real-gated linear recurrent unit (RG-LRU) in place of attention.

Source: De et al. 2024, arXiv 2402.19427, sections 2.3 and 2.4.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from generator.language import layers, point, splice, threaded
from generator.language.roles import Linear, ModelConfig, Norm, PositiveInt, add_bias, convolve, linear_recurrence


class ModelConfig:
    recurrent_width: PositiveInt  # channels of a recurrent unit, in as many blocks as there are heads
    convolution_size: PositiveInt = 4  # tokens that a short convolution reads: its own and those before


@splice("check_config.together")
def _(config, problems):
    if config.recurrent_width % config.heads:
        problems.append(f"--recurrent-width {config.recurrent_width}: must be a multiple of --heads, {config.heads}")


@jax.custom_gradient
def bounded_root(x: Array) -> tuple[Array, Array]:
    """Computes the square root, with a gradient of at most 1000: that at 0 is infinite."""
    return jnp.sqrt(x), lambda dy: dy * jax.lax.rsqrt(jnp.maximum(4 * x, 1e-6))


class RecurrentUnit(nnx.Module):
    """Projects to blocks, convolves them over tokens, applies a gated recurrence, and projects back.

    H is the size of a block, of which there are N.
    """

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        D, N, H = config.width, config.heads, config.recurrent_width // config.heads
        K, std = config.convolution_size, config.init_std
        self.value = Linear("BTD,DNH->BTNH", (D, N, H), ("embed", "heads", "head_size"), std, rngs)
        self.gate = Linear("BTD,DNH->BTNH", (D, N, H), ("embed", "heads", "head_size"), std, rngs)
        self.write = Linear("BTNI,NIH->BTNH", (N, H, H), ("heads", None, "head_size"), std, rngs)
        self.keep = Linear("BTNI,NIH->BTNH", (N, H, H), ("heads", None, "head_size"), std, rngs)
        self.out = Linear("BTNH,NHD->BTD", (N, H, D), ("heads", "head_size", "embed"), std, rngs)
        # vectors of a block: no weight decay
        self.value_bias = nnx.Param(jnp.zeros((N, H)), axes=("head_size",))
        self.gate_bias = nnx.Param(jnp.zeros((N, H)), axes=("head_size",))
        self.write_bias = nnx.Param(jnp.zeros((N, H)), axes=("head_size",))
        self.keep_bias = nnx.Param(jnp.zeros((N, H)), axes=("head_size",))
        self.out_bias = nnx.Param(jnp.zeros(D), axes=("embed",))
        self.kernel = nnx.Param(std * jax.random.normal(rngs.params(), (K, N, H)), axes=("head_size",))
        self.kernel_bias = nnx.Param(jnp.zeros((N, H)), axes=("head_size",))
        squared = jax.random.uniform(rngs.params(), (N, H), minval=0.9**2, maxval=0.999**2)
        self.rate = nnx.Param(jnp.log(jnp.expm1(-jnp.log(squared) / 2)), axes=("head_size",))

    def __call__(self, x: Array, positions: Array = threaded(), segment_ids: Array | None = threaded()) -> Array:
        value, gate = checkpoint_name(self.value(x), "up"), checkpoint_name(self.gate(x), "gate")  # [B, T, N, H]
        value = add_bias(value, self.value_bias[...])
        with point("RecurrentUnit.convolve", value):
            value = convolve(value, self.kernel[...], segment_ids)
        value = add_bias(value, self.kernel_bias[...])
        write = jax.nn.sigmoid(add_bias(self.write(value), self.write_bias[...]).astype(jnp.float32))
        keep = jax.nn.sigmoid(add_bias(self.keep(value), self.keep_bias[...]).astype(jnp.float32))
        log_decay = -8 * keep * jax.nn.softplus(self.rate[...])
        is_first = (positions == 0)[:, :, None, None]
        decay = jnp.where(is_first, 0, jnp.exp(log_decay))
        written = jnp.where(is_first, 1, bounded_root(-jnp.expm1(2 * log_decay))) * write * value.astype(jnp.float32)
        with point("RecurrentUnit.recur", written, decay):
            empty = jnp.zeros_like(written[:, 0])
            y = linear_recurrence(written, decay, empty)  # [B, T, N, H]
        gate = jax.nn.gelu(add_bias(gate, self.gate_bias[...]))
        y = self.out(gate * y.astype(x.dtype))
        return checkpoint_name(add_bias(y, self.out_bias[...]), "out")


@splice("Block.mixer")
def _(self, config, rngs):
    self.recurrent_norm = Norm(config.width, config.norm_epsilon)
    self.recurrent = RecurrentUnit(config, rngs)


@splice("Block.normed_attention")
def _(self, x, h):
    h = self.recurrent_norm(x)
    h = self.recurrent(h)


@splice("flops", before="swiglu dense_layers experts mtp")
def _(parameters, config):
    of_channel = 3 * config.width + config.convolution_size + 2 * config.recurrent_width // config.heads
    parameters += layers.count * config.recurrent_width * of_channel


@splice("hf.layer_tensors")
def _():
    yield "recurrent_norm.scale", "model.layers.{}.temporal_pre_norm.weight", "d -> d"
    yield "recurrent.value.kernel", "model.layers.{}.temporal_block.linear_x.weight", "d n h -> (n h) d"
    yield "recurrent.value_bias", "model.layers.{}.temporal_block.linear_x.bias", "n h -> (n h)"
    yield "recurrent.gate.kernel", "model.layers.{}.temporal_block.linear_y.weight", "d n h -> (n h) d"
    yield "recurrent.gate_bias", "model.layers.{}.temporal_block.linear_y.bias", "n h -> (n h)"
    yield "recurrent.kernel", "model.layers.{}.temporal_block.conv_1d.weight", "k n h -> (n h) 1 k"
    yield "recurrent.kernel_bias", "model.layers.{}.temporal_block.conv_1d.bias", "n h -> (n h)"
    yield "recurrent.write.kernel", "model.layers.{}.temporal_block.rg_lru.input_gate_weight", "n i h -> n i h"
    yield "recurrent.write_bias", "model.layers.{}.temporal_block.rg_lru.input_gate_bias", "n h -> n h"
    yield "recurrent.keep.kernel", "model.layers.{}.temporal_block.rg_lru.recurrent_gate_weight", "n i h -> n i h"
    yield "recurrent.keep_bias", "model.layers.{}.temporal_block.rg_lru.recurrent_gate_bias", "n h -> n h"
    yield "recurrent.rate", "model.layers.{}.temporal_block.rg_lru.recurrent_param", "n h -> (n h)"
    yield "recurrent.out.kernel", "model.layers.{}.temporal_block.linear_out.weight", "n h d -> d (n h)"
    yield "recurrent.out_bias", "model.layers.{}.temporal_block.linear_out.bias", "d -> d"


@splice("hf.sizes")
def _():
    yield "lru_width", "recurrent_width"
    yield "conv1d_width", "convolution_size"


@splice("test_adamw.words", optional=True)
def _(words):
    words += ["rate", "recurrent.kernel"]
