"""Expert parallelism over mesh_tensor: devices have the same tokens; each adds the output of its own experts.

The alternative splits the inner width of every expert. This way, a step of few tokens has fewer, wider kernels.

Source: DeepSeek-AI 2024, arXiv 2412.19437, section 3.4.2 (decoding, each device with some of the experts).
"""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import excludes, requires, splice
from generator.language.roles import RULES, Experts, dispatch, gather, gather_whole

requires("dropless")
excludes("expert_exchange")  # which splits experts along the axis of tokens


@splice("dropless.spread", optional=True)
def _(specs, summands, spread):
    spread = jax.shard_map(own_and_dispatch, in_specs=specs, out_specs=summands)


def own_and_dispatch(experts: Experts, x: Array, weights: Array, chosen: Array) -> Array:
    """Dispatches to the experts of this device of mesh_tensor; returns their partial sum."""
    experts = gather(experts, ("expert", "expert_embed"), x.dtype)
    experts.number = experts.gate.kernel.shape[0]  # on this device
    x, weights = jax.lax.pcast((x, weights), RULES["mlp"], to="varying")  # sums token gradients over devices
    numbers = chosen - experts.number * jax.lax.axis_index(RULES["mlp"])
    is_own = (numbers >= 0) & (numbers < experts.number)
    return dispatch(experts, x, weights, jnp.where(is_own, numbers, experts.number))


@splice("dispatch.experts")
def _(experts, rows, y, sizes):
    is_own = (jnp.arange(len(rows)) < sizes.sum())[:, None]  # rows for other devices' experts come last
    y = jnp.where(is_own, experts(jnp.where(is_own, rows, 0)), 0)


@splice("gather.along", optional=True)
def _(y, place, name, sent):
    of_tokens = (*RULES["batch"], *RULES["sequence"])  # axes along which tokens differ
    tokens = tuple(axis for axis in RULES[name] if axis in of_tokens)
    y = gather_whole(y, tokens, place, sent)
