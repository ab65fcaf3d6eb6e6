"""Adafactor: keeps only the row and column means of a matrix's squared gradients.

Source: Shazeer and Stern 2018, arXiv 1804.04235, algorithm 4, with AdamW's learning rate, not section 8's.
"""

import functools
from typing import Annotated

import jax
import numpy as np
import optax
from flax import nnx

from generator.language.roles import NonNegativeFloat, PositiveFloat, decays, learning_rate


class TrainConfig:
    square_decay: Annotated[float, 0, 1] = 0.8  # decay of the mean of squares in step t: 1 - t ** -square_decay
    max_update: PositiveFloat = 1.0  # clips the RMS of each parameter's update, over its stack of layers
    weight_decay: NonNegativeFloat = 0.1  # a step subtracts learning rate * weight_decay of each matrix


def with_axes(state: optax.FactoredState, model, factored: bool) -> optax.FactoredState:
    """Gives the state's arrays their own axes if `factored`, for the mesh; else the model's, for optax."""

    def relabel(param, x, place: int | None = None):
        if not factored or x.shape == param.shape:
            return x.replace(axes=param.axes)
        if x.size == 1:  # there is no such factor
            return x.replace(axes=())
        left_out = np.argsort(param.shape)[place] - (param.ndim - len(param.axes))  # below 0: the axis of layers
        kept = [axis for number, axis in enumerate(param.axes) if number != left_out]
        return x.replace(axes=tuple(kept))

    def relabel_all(tree, place: int | None = None):
        each = functools.partial(relabel, place=place)
        return jax.tree.map(each, model, tree, is_leaf=lambda x: isinstance(x, nnx.Param))

    # rows are means over the largest axis, columns over the second largest
    rows, columns = relabel_all(state.v_row, -1), relabel_all(state.v_col, -2)
    return optax.FactoredState(state.count, rows, columns, relabel_all(state.v))


def scale_by_factors(config: TrainConfig) -> optax.GradientTransformation:
    """Returns optax's factored RMS scaling, with a state that is sharded as the parameters are."""
    rule = optax.scale_by_factored_rms(decay_rate=config.square_decay)

    def update(gradients, state, model):
        updates, state = rule.update(gradients, with_axes(state, model, factored=False), model)
        return updates, with_axes(state, model, factored=True)

    return optax.GradientTransformation(lambda model: with_axes(rule.init(model), model, factored=True), update)


def make_optimizer(config: TrainConfig) -> optax.GradientTransformation:
    """Returns the optax rule that updates the parameters."""
    return optax.chain(
        scale_by_factors(config),
        optax.clip_by_block_rms(config.max_update),
        optax.add_decayed_weights(config.weight_decay, decays),
        optax.scale_by_learning_rate(functools.partial(learning_rate, config=config)),
    )
