"""Muon for the matrices of the layers, and AdamW with Nesterov momentum for all other parameters.

Source: Jordan et al. 2024, kellerjordan.github.io/posts/muon; Liu et al. 2025, arXiv 2502.16982, section 2.2.
"""

from typing import Annotated

import jax
import numpy as np
import optax
import torch
from flax import nnx

from generator.language import splice
from generator.language.roles import arrays, decays


class TrainConfig:
    muon_beta: Annotated[float, 0, 0.999999] = 0.95  # decay of the momentum that is orthogonalised


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
    muon = optax.contrib.muon(
        1.0,
        beta=config.muon_beta,
        eps=epsilon,
        mu_dtype=config.moments_dtype,
        adam_b1=b1,
        adam_b2=b2,
        muon_weight_dimension_numbers=muon_matrices,
        consistent_rms=0.2,
    )
    # the embedding and the head decay too; the updates are subtracted already
    rule = optax.chain(muon, optax.add_decayed_weights(-decay, decays), optax.scale_by_schedule(rate))


@splice("test_adamw.reference", optional=True)
def _(config, decays, vectors, reference):
    groups = [{"params": decays, "weight_decay": 0.5}, {"params": vectors, "weight_decay": 0.0}]
    # with so large a momentum_decay, torch's momentum is b1 from the first step on, as optax's
    reference = torch.optim.NAdam(
        groups,
        betas=(config.adam_b1, config.adam_b2),
        eps=config.adam_epsilon,
        momentum_decay=1e9,
        decoupled_weight_decay=True,
    )


@splice("test_adamw.updated", optional=True)
def _(model, leaves, step):
    orthogonal = tuple(arrays(muon_matrices(model)))  # each path goes on with the sides of the matrix
    for path, updated in arrays(model).items():
        if any(side.startswith(path) for side in orthogonal):
            leaves[path].data = torch.tensor(updated)  # Muon's
        np.testing.assert_allclose(updated, leaves[path].detach(), rtol=1e-4, atol=1e-6, err_msg=f"{path} {step}")


@splice("test_adamw.moments", optional=True)
def _(state, parameters, mean):
    rules = [rule.inner_state[0].mu for rule in state.opt_state[1][0].inner_states.values()]
    mean = {jax.tree_util.keystr(path): x for mu in rules for path, x in jax.tree.leaves_with_path(mu)}
    parameters = {jax.tree_util.keystr(path): x for path, x in jax.tree.leaves_with_path(state.model)}
