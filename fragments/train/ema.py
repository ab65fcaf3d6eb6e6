"""An exponential moving average of the parameters, which evaluation, generation and export use.

Source: Polyak and Juditsky 1992, SIAM J. Control Optim. 30(4), 838-855.
"""

import dataclasses
from typing import Annotated

import jax
import jax.numpy as jnp
import optax

from generator.language import proceed, splice
from generator.language.roles import Decoder, TrainState


class TrainConfig:
    ema_decay: Annotated[float, 0, 0.9999999] = 0.999  # share of the average kept in a step; the rest is the parameters


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class AveragedState(TrainState):
    """The training state, with an average of the parameters."""

    average: Decoder


def swap_average(state: AveragedState) -> AveragedState:
    """Swaps the model and its average: checkpoints and evaluation take the average as the model."""
    return dataclasses.replace(state, model=state.average, average=state.model)


@splice("new_state.state")
def _(state, model, opt_state):
    state = AveragedState(jnp.zeros((), jnp.int32), model, opt_state, jax.tree.map(jnp.copy, model))


@splice("train_step.state")
def _(state, model, finite, config):
    average = optax.incremental_update(model, state.average, 1 - config.ema_decay)
    state = dataclasses.replace(state, average=optax.tree.where(finite, average, state.average))


@splice("train.restored")
def _(state):
    state = swap_average(state)


@splice("train.unrecorded")
def _(state, saved):
    saved = swap_average(state)


@splice("train.recorded")
def _(state):
    state = swap_average(state)
    proceed()
    state = swap_average(state)
