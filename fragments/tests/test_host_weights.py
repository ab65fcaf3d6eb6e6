"""Initial weights that hosts make."""

import jax
import numpy as np
import pytest

from generator.language.roles import (
    PACKAGE,
    SMALL,
    InputError,
    create_state,
    make_mesh,
    named_arrays,
    new_state,
    run_python,
)


def compare_weights():
    """Checks on 4 devices that the weights are those that devices would make, in shares of a quarter."""
    mesh = make_mesh(1, 2, 2)
    with jax.set_mesh(mesh):
        created = named_arrays(create_state(SMALL, mesh))
    expected = named_arrays(jax.jit(new_state, static_argnums=0)(SMALL))
    for name, x in expected.items():
        np.testing.assert_array_equal(x, created[name], name)
    assert min(x.addressable_shards[0].data.size / x.size for x in created.values()) == 1 / 4


def test_weights_are_those_that_devices_would_make():
    module = f"{PACKAGE.name}.tests.test_host_weights"
    process = run_python("-c", f"import {module} as test; test.compare_weights()", devices=4)
    assert process.returncode == 0, process.stderr


def test_a_host_without_a_cpu_is_told(monkeypatch):
    def none(backend):
        raise RuntimeError(f"Unknown backend {backend}")

    monkeypatch.setattr(jax, "local_devices", none)
    with pytest.raises(InputError, match="has no CPU, which makes the initial weights: give "):
        create_state(SMALL, make_mesh(1, 1, 1, devices=jax.devices()[:1]))
