"""The linear maps of experts, and their feed-forwards."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from generator.language import point, requires
from generator.language.roles import RULES, ModelConfig, gather_whole

requires("experts")


class ExpertLinear(nnx.Module):
    """A linear map for each expert, applied to rows grouped by expert."""

    def __init__(self, shape: tuple[int, int, int], axes: tuple[str, ...], std: float, rngs: nnx.Rngs):
        self.kernel = nnx.Param(std * jax.random.normal(rngs.params(), shape), axes=axes)
        point("ExpertLinear.parameters")

    def __call__(self, x: Array) -> Array:
        kernel = self.kernel.astype(x.dtype)  # [E, I, O]
        point("ExpertLinear.kernel", kernel)
        with point("ExpertLinear.product", x, kernel):
            y = jnp.einsum("ERI,EIO->ERO", x, kernel)
        return y


class Experts(nnx.Module):
    """Computes down(activation(gate(x), up(x))) for each expert."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        D, E, F, std = config.width, config.experts, config.expert_width, config.init_std
        self.number = E  # in total; in a shard_map, a device may hold only some kernels
        self.gate = ExpertLinear((E, D, F), ("expert", "expert_embed", "expert_mlp"), std, rngs)
        self.up = ExpertLinear((E, D, F), ("expert", "expert_embed", "expert_mlp"), std, rngs)
        self.down = ExpertLinear((E, F, D), ("expert", "expert_mlp", "expert_embed"), std, rngs)
        point("Experts.parameters", config, E, F, D)

    def __call__(self, x: Array) -> Array:
        gate, up = checkpoint_name(self.gate(x), "gate"), checkpoint_name(self.up(x), "up")
        point("Experts.gate_up", gate, up)
        with point("Experts.activation", gate, up):
            h = jax.nn.silu(gate) * up
        return checkpoint_name(self.down(h), "down")


def gather(experts: Experts, axes: tuple[str, ...], dtype: str) -> Experts:
    """Gathers the experts along these logical axes, sent in the dtype of the computation.

    The backward pass reduce-scatters their gradients, in the dtype of the parameters.
    """

    def gathered(p):
        with point("gather.sent", p, dtype):
            sent = dtype
        split = {axis for name in p.axes for axis in RULES.get(name, ())}
        # gradients are summed over the other axes last, once each device has only those of its own part
        with point("gather.varying", p, split):
            y = jax.lax.pcast(p.get_value(), tuple(axis for axis in RULES["batch"] if axis not in split), to="varying")
        for place, name in enumerate(p.axes):
            if name in axes:
                with point("gather.along", y, place, name, sent):
                    y = gather_whole(y, RULES[name], place, sent)
        return p.replace(y)

    return jax.tree.map(gathered, experts, is_leaf=lambda x: isinstance(x, nnx.Param))
