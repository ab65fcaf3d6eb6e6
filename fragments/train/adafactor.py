"""Adafactor: of the squares of a matrix's gradients, only the means over its rows and over its columns are kept.

Source: Shazeer and Stern 2018, arXiv 1804.04235, algorithm 4, without the step sizes of section 8: rates are AdamW's.
"""

import functools

import jax
import numpy as np
import optax
from flax import nnx

from generator.language import splice
from generator.language.roles import decays, learning_rate


class Config:
    square_decay: float = 0.8  # step t makes t ** -square_decay of the mean of the squares new
    max_update: float = 1.0  # a larger root mean square of a parameter's update, over its stack of layers, becomes this
    weight_decay: float = 0.1  # times the learning rate: the share of a matrix taken off it in a step


@splice("check_config.bounds")
def _(bounds):
    bounds.update(square_decay=(0, 1), weight_decay=(0, 1e9))


def with_axes(state: optax.FactoredState, model, factored: bool) -> optax.FactoredState:
    """The state with the axes of its own arrays, by which a mesh lays them out, or with the model's, as optax wants."""

    def relabel(param, x, place: int | None = None):
        if not factored or x.shape == param.shape:
            return x.replace(axes=param.axes)
        if x.size == 1:  # there is no such factor
            return x.replace(axes=())
        axes = (None,) * (param.ndim - len(param.axes)) + param.axes
        left_out = np.argsort(param.shape)[place]
        return x.replace(axes=axes[:left_out] + axes[left_out + 1 :])

    def relabel_all(tree, place: int | None = None):
        each = functools.partial(relabel, place=place)
        return jax.tree.map(each, model, tree, is_leaf=lambda x: isinstance(x, nnx.Param))

    # rows are means over the largest axis, columns over the next
    rows, columns = relabel_all(state.v_row, -1), relabel_all(state.v_col, -2)
    return optax.FactoredState(state.count, rows, columns, relabel_all(state.v))


def scale_by_factors(config: Config) -> optax.GradientTransformation:
    """optax's, with a state that is laid out over a mesh as the parameters are."""
    rule = optax.scale_by_factored_rms(decay_rate=config.square_decay)

    def update(gradients, state, model):
        updates, state = rule.update(gradients, with_axes(state, model, factored=False), model)
        return updates, with_axes(state, model, factored=True)

    return optax.GradientTransformation(lambda model: with_axes(rule.init(model), model, factored=True), update)


def make_optimizer(config: Config) -> optax.GradientTransformation:
    """The rule by which a step changes the parameters."""
    return optax.chain(
        scale_by_factors(config),
        optax.clip_by_block_rms(config.max_update),
        optax.add_decayed_weights(config.weight_decay, decays),
        optax.scale_by_learning_rate(functools.partial(learning_rate, config=config)),
    )
