"""Rotary angles of layers with full attention: a share of all pairs is rotated, by frequencies of the whole head.

Source: Google DeepMind 2026, Gemma 4 (its released code).
"""

from typing import Annotated

import jax.numpy as jnp
from jax import Array

from generator.language import provide, requires, splice

requires("rope", "global_heads")


class ModelConfig:
    global_rope_theta: Annotated[float, 1, 1e30] = 1_000_000.0  # rope_theta of layers with full attention
    global_rotated_share: Annotated[float, 0, 1] = 0.25  # share of each head that is rotated there


@provide("Decoder.hidden")
def global_angles(positions, config) -> Array:
    return proportional_angles(positions, config)  # [B, T, H/2]


def proportional_angles(positions: Array, config: ModelConfig) -> Array:
    """Computes the angles [B, T, H/2] of positions [B, T], in fp32; those of pairs that are not rotated are 0."""
    size = config.global_head_size
    pairs = jnp.arange(size // 2, dtype=jnp.float32)
    frequencies = config.global_rope_theta ** (-2 * pairs / size)
    frequencies = jnp.where(pairs < config.global_rotated_share * size // 2, frequencies, 0)
    return positions[..., None].astype(jnp.float32) * frequencies


# what config.json means if it leaves them out
ROPES = {
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
}


@splice("hf.rope")
def _(hf):
    ropes = hf.pop("rope_parameters", ROPES)
    hf |= {f"rope_parameters.{kind}.{entry}": value for kind, rope in ropes.items() for entry, value in rope.items()}
    hf.setdefault("rope_parameters.full_attention.partial_rotary_factor", 1.0)


@splice("hf.rope_theta")
def _():
    yield "rope_parameters.sliding_attention.rope_theta", "rope_theta"
    yield "rope_parameters.full_attention.rope_theta", "global_rope_theta"
    yield "rope_parameters.full_attention.partial_rotary_factor", "global_rotated_share"


@splice("hf.rope_scaling")
def _():
    yield "rope_parameters.sliding_attention.rope_type", "default", "a rope of that scaling"
    yield "rope_parameters.full_attention.rope_type", "proportional", "a rope of that scaling"


@splice("hf.export")
def _(hf):
    hf["rope_parameters"] = {
        kind: {entry: hf.pop(f"rope_parameters.{kind}.{entry}") for entry in entries} for kind, entries in ROPES.items()
    }
