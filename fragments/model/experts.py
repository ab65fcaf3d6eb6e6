"""Mixture of experts: each token goes to the few experts that a router chooses, and none is dropped.

Source: Shazeer et al. 2017, arXiv 1701.06538; Gale et al. 2022, arXiv 2211.15841 (dropless, by grouped products).
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jax.sharding import PartitionSpec

from generator.marks import point, setting, splice, sum_layers
from generator.roles import RULES, Linear


class Config:
    experts: int  # experts in a layer
    experts_per_token: int  # experts that each token goes to
    expert_width: int  # inner size of an expert


class ExpertLinear(nnx.Module):
    """A linear map for each expert, over rows that are sorted by their expert."""

    def __init__(self, shape: tuple[int, int, int], axes: tuple[str | None, ...], std: float, rngs: nnx.Rngs):
        self.kernel = nnx.Param(std * jax.random.normal(rngs.params(), shape), axes=axes)

    def __call__(self, x: Array, sizes: Array) -> Array:
        """x [R, I], of which the first sizes[0] rows are for expert 0, and so on; sizes [E] -> [R, O]."""
        return jax.lax.ragged_dot(x, self.kernel.astype(x.dtype), sizes)


class Experts(nnx.Module):
    """down(activation(gate(x), up(x))) of each expert."""

    def __init__(self, config: Config, rngs: nnx.Rngs):
        D, E, F, std = config.width, config.experts, config.expert_width, config.init_std
        self.gate = ExpertLinear((E, D, F), ("expert", None, "mlp"), std, rngs)
        self.up = ExpertLinear((E, D, F), ("expert", None, "mlp"), std, rngs)
        self.down = ExpertLinear((E, F, D), ("expert", "mlp", None), std, rngs)
        point("Experts.parameters", config, E, F)

    def __call__(self, x: Array, sizes: Array) -> Array:
        """x [R, D] sorted by expert, sizes [E] -> [R, D]."""
        gate, up = self.gate(x, sizes), self.up(x, sizes)  # [R, F]
        point("Experts.gate_up", gate, up, sizes)
        with point("Experts.activation", gate, up):
            h = jax.nn.silu(gate) * up
        return self.down(h, sizes)


def apply_experts(experts: Experts, x: Array, weights: Array, chosen: Array) -> Array:
    """The sum of what the chosen experts make of each token. x [B, T, D]; weights, chosen [B, T, A] -> [B, T, D].

    Each device sorts its own tokens by expert, with all experts at hand: no token leaves its device.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return dispatch(experts, x, weights, chosen)[0]
    rows = PartitionSpec(RULES["batch"], RULES["sequence"])

    def share(x):  # of the inner width, all experts
        return x.replace(PartitionSpec(*(RULES["mlp"] if axis == "mlp" else None for axis in x.axes)))

    specs = jax.tree.map(share, experts, is_leaf=lambda x: isinstance(x, nnx.Param))
    summands = PartitionSpec(RULES["mlp"], RULES["batch"], RULES["sequence"])
    spread = jax.shard_map(dispatch, in_specs=(specs, rows, rows, rows), out_specs=summands)
    return spread(experts, x, weights, chosen).sum(axis=0)


def dispatch(experts: Experts, x: Array, weights: Array, chosen: Array) -> Array:
    """`apply_experts` on one device, [1, B, T, D]: the summand of its share of the inner width."""
    B, T, D = x.shape
    order = jnp.argsort(chosen, axis=None)  # of the pairs of a token and an expert, by expert
    sizes = jnp.bincount(chosen.ravel(), length=experts.gate.kernel.shape[0])  # pairs of each expert
    with point("dispatch.inputs", experts, x, order, sizes, weights, D):
        y = experts(x.reshape(-1, D)[order // chosen.shape[-1]], sizes)  # [B T A, D]
    y = y[jnp.argsort(order)].reshape(B, T, -1, D)  # each pair back in its place
    with point("dispatch.sum", y):
        total = jnp.einsum("BTAD,BTA->BTD", y, weights.astype(x.dtype))[None]
    return total


class MixtureOfExperts(nnx.Module):
    """A router, and the experts that it sends tokens to."""

    def __init__(self, config: Config, rngs: nnx.Rngs):
        D, E = config.width, config.experts
        self.active = config.experts_per_token
        self.router = Linear("BTD,DE->BTE", (D, E), ("embed", None), config.init_std, rngs)
        self.experts = Experts(config, rngs)
        point("MixtureOfExperts.parameters", config, rngs)

    def __call__(self, x: Array) -> Array:
        logits = self.router(x.astype(jnp.float32))  # [B, T, E]
        with point("MixtureOfExperts.scores", logits):
            scores = jax.nn.softmax(logits)  # [B, T, E]
        with point("MixtureOfExperts.choice", scores, logits):
            weights, chosen = jax.lax.top_k(scores, self.active)  # [B, T, A]: the experts of each token
        point("MixtureOfExperts.weights", weights)
        point("MixtureOfExperts.chosen", logits, scores, chosen)
        y = apply_experts(self.experts, x, weights, chosen)
        point("MixtureOfExperts.result", x, y, weights, chosen)
        return y


@splice("Block.feed_forward")
def _(self, config, rngs):
    self.mlp = MixtureOfExperts(config, rngs)


@splice("flops")
def _(products, config):
    active = 3 * config.experts_per_token * config.expert_width
    products["experts"] = sum_layers(1) * config.width * (active + config.experts)  # and the router


@splice("hf.layer_tensors")
def _():
    yield "mlp.router.kernel", setting("hf_router"), "d e -> e d"
    yield "mlp.experts.gate.kernel", setting("hf_expert_gate"), setting("hf_expert_inner")
    yield "mlp.experts.up.kernel", setting("hf_expert_up"), setting("hf_expert_inner")
    yield "mlp.experts.down.kernel", setting("hf_expert_down"), setting("hf_expert_outer")


@splice("hf.sizes")
def _():
    yield setting("hf_experts"), "experts"
    yield "num_experts_per_tok", "experts_per_token"
    yield setting("hf_expert_width"), "expert_width"
