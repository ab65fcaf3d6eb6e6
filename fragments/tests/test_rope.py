"""Rotation against complex numbers."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np

from generator.language import requires
from generator.language.roles import rotary_angles, rotate

requires("rope")


def test_rotation_is_a_complex_product_also_far_out():
    positions = np.array([[0, 1, 257, 100_003]])
    x = np.random.default_rng(0).normal(size=(1, 4, 2, 8)).astype(np.float32)
    frequencies = 10_000.0 ** (-np.arange(0, 8, 2) / 8)
    turns = np.exp(1j * positions[..., None, None] * frequencies)  # [1, 4, 1, 4]
    expected = (x[..., :4] + 1j * x[..., 4:]) * turns
    rotated = rotate(x, rotary_angles(jnp.asarray(positions), SimpleNamespace(head_size=8, rope_theta=10_000.0)))
    # fp32 resolves an angle of 1e5 only to 4e-3
    np.testing.assert_allclose(rotated[:, :3], np.concatenate([expected.real, expected.imag], -1)[:, :3], atol=1e-4)
    np.testing.assert_allclose(rotated[:, 3:], np.concatenate([expected.real, expected.imag], -1)[:, 3:], atol=0.03)
