"""Separate, linearly scaled rotary angles in layers with full attention.

Source: Gemma Team 2025, arXiv 2503.19786, section 2; Chen et al. 2023, arXiv 2306.15595, section 3.2 (scaling).
"""

import dataclasses
from typing import Annotated

from jax import Array

from generator.language import provide, splice
from generator.language.roles import PositiveFloat, rotary_angles


class ModelConfig:
    global_rope_theta: Annotated[float, 1, 1e30] = 1_000_000.0  # rope_theta of layers with full attention
    global_rope_factor: PositiveFloat = 1.0  # divides their angles, so that longer sequences rotate no further


@provide("Decoder.hidden")
def global_angles(positions, config) -> Array:
    full = dataclasses.replace(config, rope_theta=config.global_rope_theta)
    return rotary_angles(positions, full) / config.global_rope_factor


@splice("hf.rope")
def _(hf):
    ropes = hf.get("rope_parameters", {})  # since transformers 5
    full = ropes.get("full_attention") or hf.get("rope_scaling") or {}
    local = ropes.get("sliding_attention") or {}
    hf["rope_theta"] = full.get("rope_theta", hf.get("rope_theta", 1_000_000.0))
    hf["rope_local_base_freq"] = local.get("rope_theta", hf.get("rope_local_base_freq", 10_000.0))
    hf["rope_factor"] = full.get("factor", 1.0)
    kinds = full.get("rope_type", "default"), local.get("rope_type", "default")
    hf["rope_scaling"] = None if kinds in (("default", "default"), ("linear", "default")) else [full, local]


@splice("hf.rope_theta")
def _():
    yield "rope_theta", "global_rope_theta"
    yield "rope_local_base_freq", "rope_theta"
    yield "rope_factor", "global_rope_factor"


@splice("hf.export")
def _(hf):
    factor = hf.pop("rope_factor")
    hf["rope_scaling"] = None if factor == 1 else {"rope_type": "linear", "factor": factor}
