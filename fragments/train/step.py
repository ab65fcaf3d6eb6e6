"""Loss, optimizer and the training step, with gradient accumulation."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import Array
from jax.sharding import Mesh

from generator.language import point
from generator.language.roles import (
    Config,
    Decoder,
    NonNegativeInt,
    PositiveInt,
    abstract,
    learning_rate,
    loss,
    make_optimizer,
)


class TrainConfig:
    """How the model is trained and evaluated."""

    seed: NonNegativeInt = 0  # seed of the initial weights and of the data order
    steps: PositiveInt = 1000  # steps of the whole run, over which the learning rate falls; skipped ones count
    accumulation: PositiveInt = 1  # microbatches per batch, one after the other, to save memory


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """What a training step updates."""

    step: Array  # steps done, int32 []
    model: Decoder
    opt_state: optax.OptState


def count_updates(state: TrainState) -> Array:
    """Returns how many steps updated the model: all but the skipped ones, [] int32."""
    return optax.tree.get(state.opt_state, "ScaleByScheduleState").count


def checkpoint_items(state: TrainState) -> dict[str, Any]:
    """Returns what a checkpoint keeps apart: the model, which can be loaded alone, and the rest."""
    return {"model": state.model, "training": dataclasses.replace(state, model=None)}


def new_state(config: Config, model: Decoder | None = None) -> TrainState:
    """Returns the state before the first step, of `model` or a new one."""
    model = Decoder(config, nnx.Rngs(config.seed)) if model is None else model
    with point("new_state.optimizer", config, model):
        opt_state = make_optimizer(config).init(model)
    with point("new_state.state", model, opt_state):
        state = TrainState(jnp.zeros((), jnp.int32), model, opt_state)
    return state


def create_state(config: Config, mesh: Mesh, model: Decoder | None = None) -> TrainState:
    """Makes a new_state that is sharded over the mesh from the start; a given model's arrays are donated."""
    with point("create_state.layout", config, mesh):
        layout = jax.tree.map(lambda x: x.sharding, abstract(lambda: new_state(config), mesh))
    point("create_state.model", config, mesh, model)
    return jax.jit(lambda model: new_state(config, model), out_shardings=layout, donate_argnums=0)(model)


def train_step(state: TrainState, batch: dict[str, Array], config: Config) -> tuple[TrainState, dict[str, Array]]:
    """Takes one optimizer step on a batch of arrays [B, T]; returns the new state and scalar metrics."""
    with point("train_step.gradient", state, config):
        gradient = jax.grad(lambda model, batch: loss(model, batch, config), has_aux=True)
    # sums over microbatches; microbatch i has rows i, i + accumulation, ..., so it is sharded as the batch is
    accumulate = optax.microbatch(gradient, 1, config.batch_size // config.accumulation)
    point("train_step.batch", state, batch, config)
    with point("train_step.gradients", accumulate, state, batch):
        gradients, sums = accumulate(state.model, batch)
    target_count = jnp.maximum(sums["targets"], 1)
    gradients = jax.tree.map(lambda g: g / target_count, gradients)  # once, so that each target counts the same
    norm = optax.tree.norm(gradients)  # before clipping
    finite = jnp.isfinite(norm + sums["cross_entropy"])

    with point("train_step.update", config, gradients, state):
        updates, opt_state = make_optimizer(config).update(gradients, state.opt_state, state.model)
        point("train_step.updates", updates, sums=sums, config=config)
        model = optax.apply_updates(state.model, updates)
    # if not finite, the step changes nothing but its number
    model, opt_state = optax.tree.where(finite, (model, opt_state), (state.model, state.opt_state))
    metrics = {
        "train/loss": sums["cross_entropy"] / target_count,
        "train/learning_rate": learning_rate(count_updates(state), config),
        "train/gradient_norm": norm,
        "train/skipped": ~finite,
    }
    point(
        "train_step.metrics",
        metrics,
        sums=sums,
        targets=target_count,
        gradients=gradients,
        batch=batch,
        config=config,
    )
    point("train_step.state", state, model, finite, config=config)
    return dataclasses.replace(state, step=state.step + 1, model=model, opt_state=opt_state), metrics


def eval_step(model: Decoder, batch: dict[str, Array], config: Config) -> dict[str, Array]:
    """Returns the sums of `loss` over a batch [B, T], in microbatches of training's size, to save memory."""
    point("eval_step.start", model, batch, config)
    size = config.batch_size // config.accumulation
    return optax.microbatch(lambda *x: loss(*x, config)[1], 1, size)(model, batch)


def compile_step(state: TrainState, batch: dict[str, Array], config: Config) -> jax.stages.Compiled:
    """Compiles train_step for the shardings of these (abstract) arrays; donates the old state's memory."""
    layout = jax.tree.map(lambda x: x.sharding, state)
    step = jax.jit(functools.partial(train_step, config=config), donate_argnums=0, out_shardings=(layout, None))
    return step.lower(state, batch).compile()
