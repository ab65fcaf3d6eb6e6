"""Rotary position embedding.

Source: Su et al. 2021, arXiv 2104.09864, section 3.4.2.
"""

from typing import Annotated

import jax.numpy as jnp
from jax import Array

from generator.language import point, provide, splice


class ModelConfig:
    rope_theta: Annotated[float, 1, 1e30] = 10_000.0  # base of the rotation frequencies


@splice("check_config.together")
def _(config, problems):
    with point("check_config.rotated", config):
        size = config.head_size
    if size % 2:
        problems.append(f"--head-size {size}: must be even, as pairs of numbers are rotated")
    point("check_config.pairs", config, problems, size)


def rotary_angles(positions: Array, config: ModelConfig) -> Array:
    """Computes the angles [B, T, H/2] of positions [B, T], in fp32: bf16 rounds position 257 to 256."""
    with point("rotary_angles.size", config):
        size = config.head_size
    frequencies = config.rope_theta ** (-jnp.arange(0, size, 2, dtype=jnp.float32) / size)  # [H/2]
    point("rotary_angles.frequencies", frequencies, positions, config)
    return positions[..., None].astype(jnp.float32) * frequencies


def rotate(x: Array, angles: Array) -> Array:
    """Rotates pairs of numbers of each head: x [B, T, N, H], angles [B, T, H/2]."""
    sin, cos = jnp.sin(angles)[:, :, None], jnp.cos(angles)[:, :, None]  # [B, T, 1, H/2]
    point("rotate.scale", sin, cos)
    with point("rotate.rotated", x, sin, cos):
        with point("rotate.pairs", x):
            first, second = (half.astype(jnp.float32) for half in jnp.split(x, 2, axis=-1))  # x[i], x[i + H/2]
        rotated = [y.astype(x.dtype) for y in (first * cos - second * sin, second * cos + first * sin)]
        with point("rotate.joined", rotated):
            y = jnp.concatenate(rotated, axis=-1)
    return y


@provide("Decoder.hidden")
def angles(positions, config) -> Array:
    return rotary_angles(positions, config)  # [B, T, H/2]


@splice("Attention.heads")
def _(q, k, angles):
    with point("Attention.rotate", q, k):
        q, k = rotate(q, angles), rotate(k, angles)


@splice("hf.buffers")
def _():
    yield ".rotary_emb.inv_freq"


@splice("hf.sizes")
def _():
    with point("hf.rope_theta"):
        yield "rope_theta", "rope_theta"


@splice("hf.complete")
def _(hf):
    with point("hf.rope", hf):
        rope = hf.get("rope_scaling") or hf.get("rope_parameters") or {}  # before transformers 5, and since
        hf["rope_theta"] = rope.get("rope_theta", hf.get("rope_theta", 10_000.0))
        rope = {"rope_type": rope.get("type", "default")} | rope
        hf["rope_scaling"] = None if rope["rope_type"] == "default" else rope


@splice("hf.structure")
def _(config):
    with point("hf.rope_scaling", config):
        yield "rope_scaling", None, "a rope of that scaling"
