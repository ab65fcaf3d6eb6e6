"""Weight-decomposed adaptation: the norm of the weights of each output is trained too, beside the matrices of LoRA.

Source: Liu et al. 2024, arXiv 2402.09353, sections 4.1 and 4.3.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from generator.language import requires, splice
from generator.language.roles import Adapter, Linear

requires("model/lora")


def norms(kernel: Array, inputs: tuple[int, ...]) -> Array:
    """Returns the norm of the weights of each output, in fp32."""
    return jnp.linalg.vector_norm(kernel.astype(jnp.float32), axis=inputs)


def gain(adapter: Adapter, kernel: Array) -> Array:
    """Returns what each output of a kernel with LoRA's matrices is multiplied with: its norm is trained apart.

    The norm that is divided by counts as constant (section 4.3).
    """
    changed = jax.lax.stop_gradient(norms(kernel.astype(jnp.float32) + adapter.product(), adapter.inputs))
    return (norms(kernel, adapter.inputs) + adapter.magnitude.get_value()) / changed


@splice("Adapter.parameters")
def _(self, linear, kernel, y, stack, sizes, axes):
    self.inputs = tuple(place - len(kernel) for place, letter in enumerate(kernel) if letter not in y)
    outputs = [letter for letter in kernel if letter in y]
    zeros = jnp.zeros((*stack, *(sizes[letter] for letter in outputs)))
    # the norm less that of the frozen kernel; experts have LoRA alone, as in peft; one named axis: no weight decay
    self.magnitude = nnx.LoRAParam(zeros, axes=(axes[outputs[-1]],)) if isinstance(linear, Linear) else None


@splice("Adapter.merge")
def _(self, kernel, y):
    if self.magnitude is not None:
        y = y * jnp.expand_dims(gain(self, kernel), self.inputs)


@splice("Linear.adapted")
def _(self, y):
    y = (y * gain(self.adapter, self.kernel)).astype(y.dtype)
