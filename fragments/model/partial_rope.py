"""Rotary embedding of only the first part of each head.

Source: Black et al. 2022, arXiv 2204.06745, section 2.1.
"""

from typing import Annotated

import jax.numpy as jnp
from jax import Array

from generator.language import requires, splice
from generator.language.roles import rotate

requires("rope")


class ModelConfig:
    rotated_share: Annotated[float, 1e-30, 1]  # share of each head that is rotated


@splice("rotary_angles.size")
def _(size, config):
    size = int(config.head_size * config.rotated_share)


@splice("check_config.rotated")
def _(size, config):
    # the last of an odd number is rotated with its neighbour
    size = int(config.head_size * config.rotated_share + 1) // 2 * 2


@splice("check_config.pairs")
def _(config, problems, size):
    if size > config.head_size:
        problems.append(f"--head-size {config.head_size}: must be {size} or more, for the pairs that are rotated")


def rotate_part(x: Array, angles: Array) -> Array:
    """Rotates the first R numbers of each head: x [B, T, N, H], angles [B, T, R/2]."""
    size = 2 * angles.shape[-1]
    return jnp.concatenate([rotate(x[..., :size], angles), x[..., size:]], axis=-1)


@splice("Attention.rotate")
def _(q, k, angles):
    q, k = rotate_part(q, angles), rotate_part(k, angles)


@splice("hf.sizes")
def _():
    yield "partial_rotary_factor", "rotated_share"
