"""AdamW against torch's, what is clipped, and where its moments are."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch

from generator.language import point, requires
from generator.language.roles import (
    SMALL,
    arrays,
    create_state,
    learning_rate,
    make_mesh,
    make_optimizer,
    random_batch,
    state_for,
    train_step,
)

requires("adamw")


def test_optimizer_is_that_of_torch():
    """Compares five steps with torch's AdamW: some gradients are clipped, norms and the like do not decay."""
    config = dataclasses.replace(SMALL, steps=5, learning_rate=1e-2, warmup_ratio=0.4, weight_decay=0.5)
    model = state_for(config).model
    optimizer = make_optimizer(config)
    opt_state = optimizer.init(model)
    leaves = {name: torch.nn.Parameter(torch.tensor(x)) for name, x in arrays(model).items()}
    words = ["norm", "bias", "sink"]  # in the names of parameters that do not decay
    point("test_adamw.words", words)
    decays = [p for name, p in leaves.items() if not any(word in name for word in words)]
    vectors = [p for name, p in leaves.items() if any(word in name for word in words)]
    assert vectors and decays
    with point("test_adamw.reference", config, decays, vectors):
        reference = torch.optim.AdamW(
            [{"params": decays, "weight_decay": 0.5}, {"params": vectors, "weight_decay": 0.0}],
            betas=(config.adam_b1, config.adam_b2),
            eps=config.adam_epsilon,
        )
    rng = np.random.default_rng(0)
    for step in range(config.steps):
        # norms from below to above max_gradient_norm
        scale = 10.0 ** (step - 1.5) / sum(p.numel() for p in leaves.values()) ** 0.5
        gradients = jax.tree.map(lambda x: jnp.array(scale * rng.standard_normal(x.shape), jnp.float32), model)
        for p, gradient in zip(leaves.values(), jax.tree.leaves(gradients)):
            p.grad = torch.tensor(np.array(gradient))
        torch.nn.utils.clip_grad_norm_(leaves.values(), config.max_gradient_norm)
        for group in reference.param_groups:
            group["lr"] = float(learning_rate(step, config))
        reference.step()
        updates, opt_state = optimizer.update(gradients, opt_state, model)
        model = optax.apply_updates(model, updates)
        with point("test_adamw.updated", model, leaves, step):
            for name, x in arrays(model).items():
                np.testing.assert_allclose(x, leaves[name].detach(), rtol=1e-4, atol=1e-6, err_msg=f"{name} {step}")


def test_gradient_norm_is_logged_before_clipping():
    batch = random_batch(SMALL)
    configs = (dataclasses.replace(SMALL, max_gradient_norm=norm) for norm in (1e9, 1e-6))
    step = jax.jit(train_step, static_argnums=2)
    (_, free), (_, clipped) = (step(state_for(config), batch, config) for config in configs)
    assert free["train/gradient_norm"] == clipped["train/gradient_norm"] > 1e-4


def test_state_is_made_as_its_parameters_are_laid_out():
    mesh = make_mesh(1, 1, 1)
    state = create_state(SMALL, mesh)
    with point("test_adamw.moments", state):
        parameters = state.model
        mean = state.opt_state[1][0].mu
    point("test_adamw.parameters", parameters)
    for parameter, moment in zip(jax.tree.leaves(parameters), jax.tree.leaves(mean)):
        assert parameter.sharding == moment.sharding
    for a, b in zip(jax.tree.leaves(state.model), jax.tree.leaves(state_for(SMALL).model)):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    given = jax.tree.map(jnp.copy, state.model)
    again = create_state(SMALL, mesh, given)
    assert all(x.is_deleted() for x in jax.tree.leaves(given))  # initial weights are not kept twice
    assert all(bool((a == b).all()) for a, b in zip(jax.tree.leaves(again.model), jax.tree.leaves(state.model)))
