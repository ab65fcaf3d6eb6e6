"""Muon for the matrices of the layers, and AdamW with Nesterov momentum for all other parameters.

Source: Jordan et al. 2024, kellerjordan.github.io/posts/muon; Liu et al. 2025, arXiv 2502.16982, section 2.2.
"""

import jax
import optax
from flax import nnx

from generator.language import splice


class Config:
    muon_beta: float = 0.95  # decay of the momentum that is orthogonalised


@splice("check_config.bounds")
def _(bounds):
    bounds.update(muon_beta=(0, 0.999999))


def muon_matrices(model):
    """Returns the sides of each parameter's matrix for Muon, "embed" and the other axes; None: AdamW's.

    Leaves out axes that stack matrices, over layers and experts: each matrix is orthogonalised by itself.
    """

    def matrix(param):
        names = [name.replace("expert_embed", "embed") if name else name for name in param.axes]
        axes = dict(zip(names, range(-len(names), 0), strict=True))  # name -> index from the end
        axes.pop("expert", None)
        if len(axes) < 2 or "embed" not in axes or "vocab" in axes:
            return param.replace(None)
        residual = (axes.pop("embed"),)
        sides = (residual, tuple(axes.values())) if names[-1] != "embed" else (tuple(axes.values()), residual)
        return param.replace(optax.contrib.MuonDimensionNumbers(*sides))

    return jax.tree.map(matrix, model, is_leaf=lambda x: isinstance(x, nnx.Param))


@splice("make_optimizer.rule")
def _(rate, b1, b2, epsilon, decay, rule, config):
    # updates have AdamW's RMS (Liu et al. 2025, arXiv 2502.16982, section 2.2), so that one rate serves both
    rule = optax.contrib.muon(
        rate,
        beta=config.muon_beta,
        eps=epsilon,
        mu_dtype=config.moments_dtype,
        weight_decay=decay,
        adam_b1=b1,
        adam_b2=b2,
        muon_weight_dimension_numbers=muon_matrices,
        consistent_rms=0.2,
    )
