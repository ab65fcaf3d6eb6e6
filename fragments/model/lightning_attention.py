"""Lightning attention: a linear attention whose heads forget at constant rates, fewer in the upper layers.

Source: Qin et al. 2024, arXiv 2401.04658, section 3.2; MiniMax 2025, arXiv 2501.08313, section 2.2.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from generator.language import layers, point, provide, requires, splice, threaded
from generator.language.roles import Linear, ModelConfig, Norm, scan_states

requires("state_space")


def forgetting_rates(config: ModelConfig) -> Array | tuple:
    """Returns the rates at which heads forget, for each stack of layers with lightning attention, [layers, N].

    Head n, from 1 to N, has 2^(-8 n / N), times the share of the layers that are above its own: those of the last
    layer are near 0, as in the released code.
    """
    of_heads = 2.0 ** (-8 * np.arange(1, config.heads + 1) / config.heads)
    above = 1 + 1e-5 - np.arange(config.layers) / (config.layers - 1 + 1e-5)  # finite for one layer
    rates = np.float32(above[:, None] * of_heads)
    return layers.stacked(lambda group: rates[group.numbers])


@provide("Decoder.hidden", per_layer=True)
def rates(config) -> Array:
    return forgetting_rates(config)


class LightningAttention(nnx.Module):
    """Projects to heads, reads what keys and values have written to a state, and projects a gated norm back."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        D, N, H, std = config.width, config.heads, config.head_size, config.init_std
        axes = "embed", "heads", None, "head_size"
        self.query_key_value = Linear("BTD,DNGH->BTNGH", (D, N, 3, H), axes, std, rngs)
        self.gate = Linear("BTD,DNH->BTNH", (D, N, H), ("embed", "heads", "head_size"), std, rngs)
        self.norm = Norm(N * H, 1e-6)  # its own epsilon
        self.out = Linear("BTNH,NHD->BTD", (N, H, D), ("heads", "head_size", "embed"), std, rngs)

    def __call__(self, x: Array, rates: Array = threaded(), segment_ids: Array | None = threaded()) -> Array:
        heads = jax.nn.silu(checkpoint_name(self.query_key_value(x), "key_value")).astype(jnp.float32)
        q, k, v = jnp.moveaxis(heads, 3, 0)  # [B, T, N, H]
        gate = checkpoint_name(self.gate(x), "gate")
        with point("LightningAttention.read", q, k, v, rates):
            B, _, N, H = q.shape
            decay = jnp.broadcast_to(-rates, q.shape[:3])
            y, _ = scan_states(v, decay, k, q, jnp.zeros((B, N, H, H), jnp.float32), segment_ids)
        y = self.norm(y.reshape(*y.shape[:2], -1)).reshape(y.shape) * jax.nn.sigmoid(gate.astype(jnp.float32))
        return checkpoint_name(self.out(y.astype(x.dtype)), "out")


@splice("Block.mixer")
def _(self, config, rngs):
    self.lightning_norm = Norm(config.width, config.norm_epsilon)
    self.lightning = LightningAttention(config, rngs)


@splice("Block.normed_attention")
def _(self, x, h):
    with point("Block.lightning_input", x):
        h = self.lightning_norm(x)
    h = self.lightning(h)


@splice("flops", before="swiglu dense_layers experts mtp")
def _(parameters, config):
    heads = config.heads * config.head_size
    parameters += layers.count * heads * (5 * config.width + 2 * config.head_size)  # the state is written, and read


@splice("hf.layer_tensors")
def _():
    yield "lightning_norm.scale", "model.layers.{}.input_layernorm.weight", "d -> d"
    yield "lightning.query_key_value.kernel", "model.layers.{}.self_attn.qkv_proj.weight", "d n g h -> (n g h) d"
    yield "lightning.gate.kernel", "model.layers.{}.self_attn.output_gate.weight", "d n h -> (n h) d"
    yield "lightning.norm.scale", "model.layers.{}.self_attn.norm.weight", "m -> m"
    yield "lightning.out.kernel", "model.layers.{}.self_attn.out_proj.weight", "n h d -> d (n h)"


@splice("hf.buffers")
def _():
    yield from (".slope_rate", ".query_decay", ".key_decay", ".diagonal_decay")
