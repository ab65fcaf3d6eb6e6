"""Multi-head latent attention: keys and values of all heads are projected from one small latent for each token.

Source: DeepSeek-AI 2024, arXiv 2405.04434, section 2.1.
"""

import jax.numpy as jnp
from flax import nnx
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from generator.language import excludes, layers, point, setting, splice
from generator.language.roles import Cache, Linear, Norm, Pages, PositiveInt, attend, attend_cached, rotate

excludes("grouped_queries", "multi_head")


class ModelConfig:
    heads: PositiveInt  # attention heads
    nope_size: PositiveInt  # size of the part of a query or key head without rotation
    rope_size: PositiveInt  # size of the rotated part, which is shared by the keys of all heads
    value_size: PositiveInt  # size of a value head
    kv_rank: PositiveInt  # size of the latent of keys and values

    @property
    def head_size(self) -> int:
        """Returns the size of a query or key head."""
        return self.nope_size + self.rope_size


class Attention(nnx.Module):
    """Attention with latents. Letters of shapes: R latent, C own and P shared part of a head's key, H both, U value.

    The KV cache holds the latent and the shared part of each token's keys, not the keys and values of its heads.
    """

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        D, N, H, R = config.width, config.heads, config.head_size, config.kv_rank
        C, P, U, std = config.nope_size, config.rope_size, config.value_size, config.init_std
        self.latent_size, self.nope_size = R, C
        with point("Attention.query", config, D, N, H, std, rngs, C, P, R, U):
            self.query = Linear("BTD,DNH->BTNH", (D, N, H), ("embed", "heads", "head_size"), std, rngs)
        self.latent = Linear("BTD,DR->BTR", (D, R + P), ("embed", "latent"), std, rngs)
        self.latent_norm = Norm(R, 1e-6)  # its own epsilon
        self.key_value = Linear("BTR,RNU->BTNU", (R, N, C + U), ("embed", "heads", "head_size"), std, rngs)
        self.out = Linear("BTNU,NUD->BTD", (N, U, D), ("heads", "head_size", "embed"), std, rngs)
        point("Attention.parameters", config, rngs, C, D, H, N, P, R, U)

    def __call__(self, x: Array) -> Array:
        with point("Attention.project_query", x):
            q = self.query(x)  # [B, T, N, H]
        q, latent = checkpoint_name(q, "query"), checkpoint_name(self.latent(x), "key_value")
        latent, k = jnp.split(latent, [self.latent_size], axis=-1)  # [B, T, R], [B, T, P]
        latent = self.latent_norm(latent)  # [B, T, R]
        k = k[:, :, None]  # [B, T, 1, P]
        point("Attention.heads", q, k)
        with point("Attention.attend", q, k, v=latent[:, :, None]):
            heads = checkpoint_name(self.key_value(latent), "key_value")
            k_nope, v = jnp.split(heads, [self.nope_size], axis=-1)  # [B, T, N, C], [B, T, N, U]
            k = jnp.concatenate([k_nope, jnp.broadcast_to(k, (*k_nope.shape[:3], k.shape[3]))], axis=-1)
            with point("Attention.attend_heads", q, k, v):
                context = attend(q, k, v)  # [B, T, N, U]
        return checkpoint_name(self.out(context), "out")


def rotate_end(x: Array, angles: Array) -> Array:
    """Rotates the last P numbers of each head: x [B, T, N, H], angles [B, T, P/2]."""
    size = 2 * angles.shape[-1]
    return jnp.concatenate([x[..., :-size], rotate(x[..., -size:], angles)], axis=-1)


@splice("rotary_angles.size", "check_config.rotated", optional=True)
def _(size, config):
    size = config.rope_size


@splice("Attention.rotate", optional=True)
def _(q, k, angles):
    q, k = rotate_end(q, angles), rotate(k, angles)


@splice("empty_pages.shape")
def _(count, size, shape):
    shape = count, 1, size


@splice("empty_pages.arrays")
def _(shape, config, arrays):
    arrays = tuple(
        jnp.zeros((*shape, width), "float32" if setting("pages_in_fp32") else config.dtype)
        for width in (config.rope_size, config.kv_rank)
    )


@splice("attend_cached.block")
def _(k, v):
    k = jnp.concatenate([v, k], axis=-1)  # [B, 1, C, R + P]


def attend_latents(q: Array, cache: Cache, pages: Pages, kernel: Array, positions: Array) -> Array:
    """Attends from q [B, T, N, H] to latents, which kernel [R, N, C + U] projects to keys and values.

    The query absorbs the projection of keys, so that all heads attend to the latents themselves; values are
    projected at the end.
    """
    H, P = q.shape[-1], cache.key.shape[-1]
    to_key, to_value = jnp.split(kernel.astype(q.dtype), [H - P], axis=-1)  # [R, N, C], [R, N, U]
    q_latent = jnp.einsum("BTNC,RNC->BTNR", q[..., :-P], to_key)
    q = jnp.concatenate([q_latent, q[..., -P:]], axis=-1)  # [B, T, N, R + P]
    key, value = cache.key.astype(q.dtype), cache.value.astype(q.dtype)
    shared = cache._replace(key=jnp.concatenate([value, key], axis=-1))  # [B, T, 1, R + P]
    return jnp.einsum("BTNR,RNU->BTNU", attend_cached(q, shared, pages, positions, H**-0.5), to_value)


@splice("Attention.cached")
def _(self, q, cache, pages, positions, context):
    kernel = self.key_value.kernel.astype(jnp.float32)
    point("Attention.latent_kernel", kernel, linear=self.key_value)
    with point("Attention.attend_latents", q, cache, pages, kernel, positions):
        context = attend_latents(q, cache, pages, kernel, positions)


@splice("flops.attention")
def _(parameters, attention, config):
    with point("flops.query", config):
        query = config.width * config.heads * config.head_size
    latent = config.kv_rank * (config.width + config.heads * (config.nope_size + config.value_size))
    rest = config.width * (config.rope_size + config.heads * config.value_size)
    parameters += layers.count * (query + latent + rest)
    with point("flops.keys", config):
        keys = layers.count * config.sequence_length
    # FLOPs of a token with all of its sequence
    attention = 6 * config.heads * (config.head_size + config.value_size) * keys


@splice("hf.layer_tensors")
def _():
    with point("hf.query"):
        yield "attention.query.kernel", "model.layers.{}.self_attn.q_proj.weight", "d n h -> (n h) d"
    yield "attention.latent.kernel", "model.layers.{}.self_attn.kv_a_proj_with_mqa.weight", "d r -> r d"
    yield "attention.latent_norm.scale", "model.layers.{}.self_attn.kv_a_layernorm.weight", "r -> r"
    yield "attention.key_value.kernel", "model.layers.{}.self_attn.kv_b_proj.weight", "r n h -> (n h) r"
    yield "attention.out.kernel", "model.layers.{}.self_attn.o_proj.weight", "n u d -> d (n u)"


@splice("hf.sizes")
def _():
    yield "num_attention_heads", "heads"
    yield "qk_nope_head_dim", "nope_size"
    yield "qk_rope_head_dim", "rope_size"
    yield "v_head_dim", "value_size"
    yield "kv_lora_rank", "kv_rank"


@splice("hf.complete")
def _(hf):
    hf.setdefault("attention_bias", False)
    hf.setdefault("num_key_value_heads", hf["num_attention_heads"])
    hf.setdefault("head_dim", hf["qk_rope_head_dim"])
    hf.setdefault("qk_head_dim", hf["qk_nope_head_dim"] + hf["qk_rope_head_dim"])
    hf["low_rank_query"] = "q_lora_rank" in hf


@splice("hf.structure")
def _(config):
    yield "attention_bias", False, "a latent attention with biases"
    yield "num_key_value_heads", config.heads, "a latent attention of grouped queries"
    yield "head_dim", config.rope_size, "a rope of that size"
    yield "qk_head_dim", config.nope_size + config.rope_size, "a latent attention of that size"
    with point("hf.low_rank_query"):
        yield "low_rank_query", False, "model/low_rank_query"


@splice("hf.export")
def _(hf):
    hf.pop("low_rank_query")
    hf.setdefault("q_lora_rank", None)  # if absent, transformers takes that of the released model
