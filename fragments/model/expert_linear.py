"""The linear maps of experts, and the feed-forwards that they make."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from generator.language import point, requires
from generator.language.roles import Config

requires("experts")


class ExpertLinear(nnx.Module):
    """A linear map for each expert, of rows that are grouped by their expert."""

    def __init__(self, shape: tuple[int, int, int], axes: tuple[str | None, ...], std: float, rngs: nnx.Rngs):
        self.kernel = nnx.Param(std * jax.random.normal(rngs.params(), shape), axes=axes)
        point("ExpertLinear.parameters")

    def __call__(self, x: Array) -> Array:
        kernel = self.kernel.astype(x.dtype)  # [E, I, O]
        point("ExpertLinear.kernel", kernel)
        with point("ExpertLinear.product", x, kernel):
            y = jnp.einsum("ERI,EIO->ERO", x, kernel)
        return y


class Experts(nnx.Module):
    """down(activation(gate(x), up(x))) of each expert."""

    def __init__(self, config: Config, rngs: nnx.Rngs):
        D, E, F, std = config.width, config.experts, config.expert_width, config.init_std
        self.number = E  # in all: in a shard_map, a device may have the kernels of some
        self.gate = ExpertLinear((E, D, F), ("expert", None, "mlp"), std, rngs)
        self.up = ExpertLinear((E, D, F), ("expert", None, "mlp"), std, rngs)
        self.down = ExpertLinear((E, F, D), ("expert", "mlp", None), std, rngs)
        point("Experts.parameters", config, E, F)

    def __call__(self, x: Array) -> Array:
        gate, up = checkpoint_name(self.gate(x), "gate"), checkpoint_name(self.up(x), "up")
        point("Experts.gate_up", gate, up)
        with point("Experts.activation", gate, up):
            h = jax.nn.silu(gate) * up
        return checkpoint_name(self.down(h), "down")
