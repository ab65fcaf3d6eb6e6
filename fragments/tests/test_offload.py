"""Training with tensors and state in host memory, against training without."""

import dataclasses
import shutil

import jax
import numpy as np
import pytest

from generator.language import requires
from generator.language.roles import (
    SMALL,
    InputError,
    abstract_state,
    compile_step,
    create_state,
    make_mesh,
    named_arrays,
    random_batch,
    read_metrics,
    train,
)

requires("host_state")

# XLA of jaxlib 0.10.1 has no program for copies to host memory on CPUs
pytestmark = pytest.mark.skipif(jax.__version_info__ < (0, 10, 2), reason="needs a newer JAX on CPUs")

ALL = "input,attention,query,out,up,down,optimizer,parameters"


def state_after_two_steps(config):
    mesh = make_mesh(1, 1, 1, devices=jax.devices()[:1])
    with jax.set_mesh(mesh):
        batch = jax.device_put(random_batch(config), jax.NamedSharding(mesh, jax.P()))
        step = compile_step(abstract_state(config, mesh), batch, config)
        state = create_state(config, mesh)
        for _ in range(2):
            state, metrics = step(state, batch)
    assert not metrics["train/skipped"]
    return state


@pytest.mark.parametrize("settings", [{}, {"accumulation": 2, "gradient_dtype": "bfloat16"}])
def test_a_step_gives_what_it_gives_without(settings):
    config = dataclasses.replace(SMALL, **settings)
    expected = named_arrays(state_after_two_steps(config))
    state = state_after_two_steps(dataclasses.replace(config, offload=ALL, remat="full"))
    for name, x in named_arrays(state).items():
        np.testing.assert_allclose(x, expected[name], rtol=1e-6, atol=1e-6, err_msg=name)
        assert x.sharding.memory_kind == ("pinned_host" if x.ndim else "device")


def test_a_run_goes_on_to_the_bit(tmp_path):
    config = dataclasses.replace(
        SMALL, offload=ALL, steps=4, checkpoint_every=2, eval_every=2, checkpoint_dir=str(tmp_path / "run")
    )
    train(config)
    whole = read_metrics(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "4")
    train(config)
    names = "step", "train/loss", "eval/loss"
    again = read_metrics(tmp_path / "run")
    assert [[r.get(name) for name in names] for r in again] == [[r.get(name) for name in names] for r in whole]


@pytest.mark.parametrize(
    ("name", "value"), [("offload", "gate,moments"), ("offload", ","), ("offload", "input, gate"), ("remat", "gates")]
)
def test_unknown_names_are_listed_before_anything_is_written(name, value, tmp_path):
    config = dataclasses.replace(SMALL, checkpoint_dir=str(tmp_path / "run"), **{name: value})
    with pytest.raises(InputError, match=rf"^--{name} {value}: give one of .*attention, .*, or several with commas"):
        train(config)
    assert not (tmp_path / "run").exists()
