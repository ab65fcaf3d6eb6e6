"""Attention by kernels of NKI, in whose place stand stubs of their layouts."""

import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from generator.language.roles import InputError, attend, attend_nki

B = 2
T = 256
N = 4
K = 2
H = 8
LOG_SUMS = B, N, 128, T // 128


def definition(q, k, v):
    """Computes attention of q and k [B, N, H, T], v [B, N, T, H]: [B, N, T, H]."""
    scores = jnp.einsum("BNHT,BNHS->BNTS", q, k) * H**-0.5
    return jax.nn.softmax(jnp.where(jnp.tri(T, dtype=bool), scores, -jnp.inf)) @ v


class Forward:
    def __getitem__(self, grid):
        assert grid == (B, "two cores" + "h" * (N // 2))
        return self.run

    def run(self, q, k, v, seed, **options):
        assert q.shape == k.shape == (B, N, H, T) and v.shape == (B, N, T, H) and seed.shape == (1,)
        assert options == {"use_causal_mask": True, "softmax_scale": H**-0.5, "mixed_precision": True, "dropout_p": 0}
        return definition(q, k, v), jnp.ones(LOG_SUMS)


class Backward(Forward):
    def run(self, q, k, v, context, dy, log_sums, seed, **options):
        assert {x.shape for x in (q, k, v, context, dy)} == {(B, N, H, T)} and log_sums.shape == LOG_SUMS
        return jax.vjp(lambda q, k, v: definition(q, k, v.swapaxes(2, 3)).swapaxes(2, 3), q, k, v)[1](dy)


class Cores:
    """What nl.nc(2) stands for: a grid dimension that is multiplied by the number of heads on a core."""

    def __mul__(self, heads):
        return "two cores" + "h" * heads


def test_layouts_and_gradients_of_the_kernels(monkeypatch):
    kernels = SimpleNamespace(flash_fwd=Forward(), flash_attn_bwd=Backward())
    monkeypatch.setitem(sys.modules, "neuronxcc.nki.kernels.attention", kernels)
    monkeypatch.setitem(sys.modules, "neuronxcc.nki.language", SimpleNamespace(nc=lambda cores: Cores()))
    rng = np.random.default_rng(0)
    inputs = [jnp.asarray(rng.normal(size=(B, T, heads, H)), "float32") for heads in (N, K, K)]
    weights = rng.normal(size=(B, T, N, H))

    def of(attention):
        return jax.value_and_grad(lambda inputs: jnp.sum(weights * attention(*inputs)))(inputs)

    expected, found = of(lambda q, k, v: attend(q, k, v, None)), of(attend_nki)
    for x, y in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-3)


def test_missing_kernels_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "neuronxcc.nki.kernels.attention", None)
    with pytest.raises(InputError, match="build without --with nki_attention"):
        attend_nki(*jnp.ones((3, 1, 8, 2, 4)))
