"""Mixture of experts: a router sends each token to a few experts.

Source: Shazeer et al. 2017, arXiv 1701.06538.
"""

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange
from flax import nnx
from jax import Array
from jax.sharding import PartitionSpec

from generator.language import layers, point, proceed, splice
from generator.language.roles import RULES, Experts, Linear, PositiveInt, dispatch


class ModelConfig:
    experts: PositiveInt  # experts in a layer
    experts_per_token: PositiveInt  # experts that each token is routed to
    expert_width: PositiveInt  # inner size of an expert


@splice("check_config.together")
def _(config, problems):
    if config.experts_per_token > config.experts:
        problems.append(f"--experts-per-token {config.experts_per_token}: must be at most --experts {config.experts}")


def apply_experts(experts: Experts, x: Array, weights: Array, chosen: Array) -> Array:
    """Sums the weighted outputs of the chosen experts: x [B, T, D]; weights, chosen [B, T, A] -> [B, T, D].

    Each device dispatches its own tokens.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return dispatch(experts, x, weights, chosen)[0]
    rows = PartitionSpec(RULES["batch"], RULES["sequence"])

    def layout(p):
        return p.replace(PartitionSpec(*(RULES.get(axis) for axis in p.axes)))

    specs = jax.tree.map(layout, experts, is_leaf=lambda x: isinstance(x, nnx.Param)), rows, rows, rows
    summands = PartitionSpec(RULES["mlp"], RULES["batch"], RULES["sequence"])
    with point("apply_experts.spread", specs, summands):
        spread = jax.shard_map(dispatch, in_specs=specs, out_specs=summands)
    return spread(experts, x, weights, chosen).sum(axis=0)


class MixtureOfExperts(nnx.Module):
    """A router and its experts."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        D, E = config.width, config.experts
        self.active = config.experts_per_token
        self.router = Linear("BTD,DE->BTE", (D, E), ("embed", None), config.init_std, rngs)
        self.experts = Experts(config, rngs)
        point("MixtureOfExperts.parameters", config, rngs, D, E)

    def __call__(self, x: Array) -> Array:
        with jax.default_matmul_precision("highest"):  # in fp32 on TPUs too, in both passes
            with point("MixtureOfExperts.logits", x):
                logits = self.router(x.astype(jnp.float32))  # [B, T, E]
        with point("MixtureOfExperts.scores", logits):
            scores = jax.nn.softmax(logits)  # [B, T, E]
        with point("MixtureOfExperts.choice", scores, logits):
            weights, chosen = jax.lax.top_k(scores, self.active)  # [B, T, A]: the experts of each token
        point("MixtureOfExperts.routed", logits, scores, weights, chosen)
        point("MixtureOfExperts.weights", weights)
        point("MixtureOfExperts.chosen", logits, scores, weights, chosen)
        with point("MixtureOfExperts.applied", x, weights, chosen):
            y = apply_experts(self.experts, x, weights, chosen)
        point("MixtureOfExperts.result", x, y, weights, chosen)
        return y


@splice("Block.feed_forward")
def _(self, config, rngs):
    self.mlp = MixtureOfExperts(config, rngs)


@splice("flops", before="mtp")
def _(parameters, config):
    active = 3 * config.experts_per_token * config.expert_width + config.experts  # and the router
    parameters += layers.count * config.width * active


@splice("hf.layer_tensors")
def _():
    yield "mlp.router.kernel", "model.layers.{}.mlp.gate.weight", "d e -> e d"
    yield "mlp.experts.gate.kernel", "model.layers.{}.mlp.experts.{}.gate_proj.weight", "d f -> f d"
    yield "mlp.experts.up.kernel", "model.layers.{}.mlp.experts.{}.up_proj.weight", "d f -> f d"
    yield "mlp.experts.down.kernel", "model.layers.{}.mlp.experts.{}.down_proj.weight", "f d -> d f"


@splice("hf.layer")
def _(name, values):
    for expert in np.ndindex(values.shape[: name.count("{}") - 1]):
        proceed()


@splice("hf.tensor")
def _(name, layer, values, layout, tensor, view, expert):
    tensor = name.format(layer, *expert)
    view = rearrange(values[expert], layout)


@splice("hf.sizes")
def _():
    yield "num_experts", "experts"
    yield "num_experts_per_tok", "experts_per_token"
    yield "moe_intermediate_size", "expert_width"
