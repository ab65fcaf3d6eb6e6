"""Scores of attention are scaled in fp32, not in the dtype of queries and keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from generator.language import excludes, requires
from generator.language.roles import attend

requires("attention or latent_attention")
excludes("attend_splash", "attend_cudnn")  # whose values have the dtype of the keys, and so the context
excludes("attention_soft_cap", "attention_sinks", "sliding_window")


@pytest.mark.parametrize("size", [64, 80, 96, 128, 256])
def test_keys_in_bfloat16_give_the_scores_of_their_numbers(size):
    """Against sums in fp64 of the same bf16 numbers, forward and by the gradient of the values."""
    rng = np.random.default_rng(size)
    q, k, v, dy = (jnp.asarray(rng.normal(size=(1, 12, 1, size)), jnp.float32) for _ in range(4))
    q, k = q.astype(jnp.bfloat16), k.astype(jnp.bfloat16)
    context, pull_back = jax.vjp(lambda v: attend(q, k, v, None), v)
    scores = np.einsum("TH,SH->TS", *(np.asarray(x[0, :, 0], np.float64) for x in (q, k))) / np.sqrt(size)
    weights = np.tril(np.exp(scores))
    weights /= weights.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(context[0, :, 0], weights @ v[0, :, 0], atol=1e-5)
    np.testing.assert_allclose(pull_back(dy)[0][0, :, 0], weights.T @ dy[0, :, 0], atol=1e-5)
