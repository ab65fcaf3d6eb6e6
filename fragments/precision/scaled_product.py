"""Products in 8 bits, of operands that are scaled to the range of their format."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jax.ad_checkpoint import checkpoint_policies as policies

from generator.language import proceed, setting, splice
from generator.language.roles import DEVICES, FORMAT, low_precision_product, scaled

# of --remat dots: the results, rather than what is summed in 32 bits before it is scaled
KEEP_DOTS = policies.save_only_these_names("product")


def summed_axes(equation: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the axes of both operands of an einsum that it sums over."""
    x, y, _ = equation.replace("->", ",").split(",")
    return tuple(i for i, a in enumerate(x) if a in y), tuple(y.index(a) for a in x if a in y)


def multiply(equation: str, x: tuple[Array, Array], y: tuple[Array, Array], dtype: str) -> Array:
    """Computes jnp.einsum(equation, x, y) of 8-bit arrays with their scales, summed in 32 bits; returns it in `dtype`.

    The result has the axes of x that are not summed over, then those of y.
    """
    (x, x_scale), (y, y_scale) = x, y
    z = jax.lax.dot_general(x, y, (summed_axes(equation), ((), ())), preferred_element_type=setting("sums_of_products"))
    x_scale = jnp.expand_dims(x_scale, tuple(range(-y_scale.ndim, 0)))
    return (z * x_scale * y_scale).astype(dtype)


def scaled_product(equation: str, x: Array, y: Array, x_type: type, y_type: type, dtype: str) -> Array:
    """Computes jnp.einsum(equation, x, y) in 8 bits.

    Each slice of x and of y that is summed over has a scale of its own, so that rows of x do not affect each other.
    """
    x_axes, y_axes = summed_axes(equation)
    return multiply(equation, scaled(x, x_axes, x_type), scaled(y, y_axes, y_type), dtype)


def describe_products(dtype: str, device: jax.Device) -> str:
    """Says in which format linear maps multiply, and whether the device can."""
    if dtype == "float32":
        return f"note: no product is in {FORMAT} with --dtype float32: give --dtype bfloat16"
    if device.device_kind.startswith(tuple(DEVICES)):
        return f"products of linear maps: {FORMAT}"
    return f"note: {device.device_kind} emulates products in {FORMAT}, slower than in bfloat16"


@splice("Linear.product")
def _(self, x, y):
    if x.dtype == jnp.float32:  # as a router's is, which stays so
        proceed()
    else:
        y = low_precision_product(self.equation, x, self.kernel.get_value())
        y = checkpoint_name(y, "product")


@splice("train.settings")
def _(config):
    print(describe_products(config.dtype, jax.devices()[0]))


@splice("compile.step", after="host_state")
def _(config, mesh):
    print(describe_products(config.dtype, mesh.devices.flat[0]))
    proceed()
