"""A small random model, for exports that transformers reads."""

import dataclasses

import jax
import numpy as np
import pytest
from flax import nnx

from generator.language import point
from generator.language.roles import PRESETS, SMALL, Config, Decoder


def exported_config() -> Config:
    """Returns the config of a model that transformers has in full."""
    config = dataclasses.replace(SMALL, width=PRESETS["tiny"].width)  # GPT-2's heads fill the width
    point("exported_config.config", config)
    return config


def random_model(config: Config) -> Decoder:
    """Makes every parameter random, norms and biases too, so that none can replace another."""
    rng = np.random.default_rng(0)
    made = jax.jit(lambda: Decoder(config, nnx.Rngs(0)))()
    random = jax.tree.map(lambda x: x + rng.normal(0, 0.1, x.shape).astype(np.float32), made)
    point("random_model.made", random)
    return random


def in_transformers(directory, dtype="float32"):
    """Returns the model of transformers for an exported directory; skips where there is no transformers."""
    models = pytest.importorskip("transformers", reason="parity needs torch and transformers: pip install '.[test]'")
    return models.AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager", dtype=dtype)
