"""Rotary frequencies divided by factors of their own, others in sequences beyond the original context.

A cache keeps the rotation of the pass that wrote it: decode on one side of the original context.

Source: Ding et al. 2024, arXiv 2402.13753, section 3.
"""

import math

import jax.numpy as jnp

from generator.language import requires, splice

requires("scaled_rope", "rope_scale")


class Config:
    rope_original_context: int = 4096  # tokens of the sequences that the frequencies were made for
    rope_short_factors: tuple[float, ...]  # divide the frequencies in sequences up to that length
    rope_long_factors: tuple[float, ...]  # divide the frequencies in longer ones


@splice("field_problems.kind")
def _(field, value, allowed, wanted):
    if field.name in ("rope_short_factors", "rope_long_factors"):
        allowed = bool(value) and all(type(x) in (int, float) and 0 < x < math.inf for x in value)
        wanted = "positive numbers"


@splice("check_config.pairs")
def _(config, problems, size):
    for factors in config.rope_short_factors, config.rope_long_factors:
        if 2 * len(factors) != size:
            problems.append(f"rope factors {factors}: must be {size // 2}, one for each pair of numbers of a head")


@splice("rotary_angles.frequencies")
def _(frequencies, positions, config):
    short, long = jnp.array(config.rope_short_factors), jnp.array(config.rope_long_factors)  # [H/2]
    frequencies = frequencies / jnp.where(positions.max() < config.rope_original_context, short, long)


@splice("Attention.parameters")
def _(self, config):
    # what is rotated grows with the context, as softmax over more keys is flatter
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
    for name in "rope_scaling.short_factor", "rope_scaling.long_factor":
        hf[name] = tuple(map(float, hf.get(name, ())))


@splice("checkpoints.config")
def _(fields):
    for name in "rope_short_factors", "rope_long_factors":
        fields[name] = tuple(fields[name])  # a list in JSON


@splice("hf.rope_scaling")
def _():
    yield "rope_scaling.rope_type", "longrope", "a rope of that scaling"
    yield "rope_scaling.factor", None, "a rope of that scaling"
    yield "rope_scaling.attention_factor", None, "a rope of that scaling"
