"""LongRoPE: a factor for each rotary frequency, and another for sequences beyond the original context.

In training, the length of a document, or of its piece in a row, counts. In an engine, all tokens so far count;
it prefills a sequence again when that outgrows the original context, like `generate` of transformers.

Source: Ding et al. 2024, arXiv 2402.13753, section 3.
"""

import math

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import provide, requires, splice
from generator.language.roles import PositiveInt

requires("scaled_rope", "rope_scale")


class ModelConfig:
    rope_original_context: PositiveInt = 4096  # context length of pretraining, in tokens
    rope_short_factors: tuple[float, ...]  # divide the frequencies in sequences up to that length
    rope_long_factors: tuple[float, ...]  # divide the frequencies in longer ones


@splice("field_problems.kind")
def _(field, value, allowed, requirement):
    if field.name in ("rope_short_factors", "rope_long_factors"):
        allowed = bool(value) and all(type(x) in (int, float) and 0 < x < math.inf for x in value)
        requirement = "positive numbers"


@splice("check_config.pairs")
def _(config, problems, size):
    for factors in config.rope_short_factors, config.rope_long_factors:
        if 2 * len(factors) != size:
            problems.append(f"rope factors {factors}: must be {size // 2}, one for each pair of numbers of a head")


def sequence_lengths(positions: Array) -> Array:
    """Returns the length of each token's sequence, [B, T]; positions [B, T] go up by one within a sequence."""
    places = jnp.arange(positions.shape[1])
    is_last = jnp.diff(positions, append=positions[:, -1:]) != 1
    last = jax.lax.cummin(jnp.where(is_last, places, places[-1]), axis=1, reverse=True)  # of its sequence
    return positions + last - places + 1


@provide("Decoder.hidden", optional=True)
def uses_long(positions, config) -> Array:
    return sequence_lengths(positions) > config.rope_original_context  # [B, T]


@provide("Decoder.hidden")
def rope_factors(uses_long, config) -> Array:
    short, long = jnp.array(config.rope_short_factors), jnp.array(config.rope_long_factors)  # [H/2]
    return jnp.where(uses_long[..., None], long, short)  # [B, T, H/2]


@splice("Attention.heads", before="rope")
def _(angles, rope_factors):
    angles = angles / rope_factors  # of each token's sequence


@splice("Attention.parameters")
def _(self, config):
    # queries and keys grow with the context, as the softmax over more keys is flatter
    stretch = max(config.context_length / config.rope_original_context, 1.0)
    self.rope_scale = math.sqrt(1 + math.log(stretch) / math.log(config.rope_original_context))


@splice("hf.sizes")
def _():
    yield "original_max_position_embeddings", "rope_original_context"
    yield "rope_scaling.short_factor", "rope_short_factors"
    yield "rope_scaling.long_factor", "rope_long_factors"


@splice("hf.complete", after="scaled_rope")
def _(hf):
    hf.setdefault("original_max_position_embeddings", 4096)
    if hf.get("rope_scaling.factor") == hf["max_position_embeddings"] / hf["original_max_position_embeddings"]:
        del hf["rope_scaling.factor"]  # implied by the two lengths
    for name in "rope_scaling.short_factor", "rope_scaling.long_factor":
        hf[name] = tuple(map(float, hf.get(name, ())))


@splice("checkpoints.config")
def _(fields):
    for factors in "rope_short_factors", "rope_long_factors":
        fields[factors] = tuple(fields[factors])  # a list in JSON


@splice("hf.rope_scaling")
def _():
    yield "rope_scaling.rope_type", "longrope", "a rope of that scaling"
    yield "rope_scaling.factor", None, "a rope of that scaling"
    yield "rope_scaling.attention_factor", None, "a rope of that scaling"
