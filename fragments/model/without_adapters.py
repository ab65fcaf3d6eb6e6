"""The model without its adapters: the weights that training started from."""

from flax import nnx

from generator.language import requires
from generator.language.roles import Decoder, projections

requires("lora")


def without_adapters(model: Decoder) -> Decoder:
    """Returns a model of the same arrays, without adapters."""
    model = nnx.clone(model)
    for _, linear in list(projections(model)):
        linear.adapter = None
    return model
