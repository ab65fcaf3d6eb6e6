"""Causal self-attention.

Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.2.
"""

from flax import nnx
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from generator.language import layers, point, splice
from generator.language.roles import Linear, PositiveInt, attend


class ModelConfig:
    heads: PositiveInt  # query heads
    head_size: PositiveInt  # size of one head


class Attention(nnx.Module):
    """Projects to heads, attends, and projects back to the width of the residual."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        with point("Attention.sizes", config):
            D, N, H = config.width, config.heads, config.head_size
        std = config.init_std
        with point("Attention.query_key_value", D, N, H, std, rngs):
            with point("Attention.kv_heads", config, D, N, H):
                K = config.kv_heads
            with point("Attention.query", D, N, K, H, std, rngs):
                self.query = Linear("BTD,DNH->BTNH", (D, N, H), ("embed", "heads", "head_size"), std, rngs)
            self.key = Linear("BTD,DKH->BTKH", (D, K, H), ("embed", "kv_heads", "head_size"), std, rngs)
            with point("Attention.value", D, N, K, H):
                self.value = Linear("BTD,DKH->BTKH", (D, K, H), ("embed", "kv_heads", "head_size"), std, rngs)
        self.out = Linear("BTNH,NHD->BTD", (N, H, D), ("heads", "head_size", "embed"), std, rngs)
        point("Attention.parameters", config, rngs, D, N, H, K=config.kv_heads)

    def __call__(self, x: Array) -> Array:
        with point("Attention.project", x):
            with point("Attention.queries", x):
                q = self.query(x)  # [B, T, N, H]
            k = self.key(x)  # [B, T, K, H]
            with point("Attention.values", k):
                v = self.value(x)  # [B, T, K, H]
        q, (k, v) = checkpoint_name(q, "query"), checkpoint_name((k, v), "key_value")
        point("Attention.heads", q, k, v)
        with point("Attention.attend", q, k, v):
            context = attend(q, k, v)  # [B, T, N, H]
        y = self.out(context)  # [B, T, D]
        point("Attention.output", y)
        return checkpoint_name(y, "out")


@splice("flops.attention")
def _(parameters, attention, config):
    heads = 2 * (config.heads + config.kv_heads)  # query and output; key and value
    parameters += layers.count * config.width * config.head_size * heads
    with point("flops.keys", config):
        keys = layers.count * config.sequence_length
    attention = 12 * config.heads * config.head_size * keys  # FLOPs of a token with all of its sequence


@splice("hf.layer_tensors")
def _():
    with point("hf.query_key_value"):
        with point("hf.query"):
            yield "attention.query.kernel", "model.layers.{}.self_attn.q_proj.weight", "d n h -> (n h) d"
        yield "attention.key.kernel", "model.layers.{}.self_attn.k_proj.weight", "d k h -> (k h) d"
        yield "attention.value.kernel", "model.layers.{}.self_attn.v_proj.weight", "d k h -> (k h) d"
    with point("hf.out"):
        yield "attention.out.kernel", "model.layers.{}.self_attn.o_proj.weight", "n h d -> d (n h)"


@splice("hf.sizes")
def _():
    yield "num_attention_heads", "heads"
    yield "head_dim", "head_size"


@splice("hf.complete")
def _(hf):
    hf.setdefault("head_dim", hf["hidden_size"] // hf["num_attention_heads"])
    hf.setdefault("attention_bias", False)


@splice("hf.structure")
def _():
    with point("hf.attention_bias"):
        yield "attention_bias", False, "biases (model/query_key_value_bias, model/output_bias)"
