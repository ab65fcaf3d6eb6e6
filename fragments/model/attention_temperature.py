"""Attention temperature: queries grow with their position, so that the softmax stays sharp over more keys.

Source: Nakanishi 2025, arXiv 2501.19399; in steps from a floor on, as in the released code of Llama 4.
"""

import jax.numpy as jnp
from jax import Array

from generator.language import provide, splice
from generator.language.roles import NonNegativeFloat, PositiveInt


class ModelConfig:
    temperature_scale: NonNegativeFloat = 0.1  # growth of queries with the logarithm of their position
    temperature_floor: PositiveInt = 8192  # positions in a step of that growth; the first step is not scaled


@provide("Decoder.hidden")
def query_scales(positions, config) -> Array:
    steps = (positions + 1) // config.temperature_floor
    return 1 + config.temperature_scale * jnp.log1p(steps)  # [B, T], in fp32


@splice("Attention.heads", after="rope")
def _(q, query_scales):
    q = (q * query_scales[:, :, None, None]).astype(q.dtype)


@splice("hf.sizes")
def _():
    yield "attn_scale", "temperature_scale"
    yield "floor_scale", "temperature_floor"


@splice("hf.temperature", optional=True)
def _():
    yield "attn_temperature_tuning", True, "queries of one scale, by leaving model/attention_temperature out,"
