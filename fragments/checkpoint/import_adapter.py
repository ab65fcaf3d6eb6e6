"""Command line: import of a Hugging Face directory with a LoRA adapter of peft."""

import dataclasses
from typing import Annotated

import jax
import numpy as np
import tyro
from flax import nnx

from generator.language import point, provide, requires, splice
from generator.language.roles import (
    Config,
    Decoder,
    InputError,
    LazyArray,
    named_arrays,
    projections,
    read_adapter,
    shortest_ends,
)

requires("huggingface/adapter_file", "checkpoint/convert")


# fmt: off
@provide("import_hf", optional=True)
def adapter() -> Annotated[
    str | None, tyro.conf.arg(help="Directory of peft; default: a run begins with new adapters.")
]:
    return None
# fmt: on


@splice("import_hf.opened")
def _(config, model, adapter):
    if adapter:
        config, model = with_peft_adapter(config, model, adapter)
    else:
        for _, linear in projections(model):
            linear.adapter = None  # the run that continues from these weights decides on adapters


def with_peft_adapter(config: Config, model: Decoder, directory: str) -> tuple[Config, Decoder]:
    """Returns Config and model with the adapter of a directory of peft. Raises InputError if LoRA here has no such."""
    arrays, rank, alpha, lacking = read_adapter(directory, config)
    point("with_peft_adapter.read", arrays, model, config)
    adapted = {name.rpartition(".adapter.")[0] for name in arrays}
    others = {path for path, linear in projections(model) if 0 not in linear.kernel.shape} - adapted
    targets = ",".join(shortest_ends(adapted, others))
    config = dataclasses.replace(config, lora_rank=rank, lora_alpha=alpha, lora_targets=targets)
    base = named_arrays(model)
    model = jax.eval_shape(lambda: Decoder(config, nnx.Rngs(0)))
    parameters = named_arrays(model)
    if lacking:
        raise InputError(
            f"{directory}: it has no matrices for {', '.join(lacking[:3])}, whose like it adapts, as training would: "
            "train an adapter of all layers"
        )
    of_no_layers = {name: np.zeros(x.shape, "float32") for name, x in parameters.items() if not x.size}
    arrays = {name: x for name, x in of_no_layers.items() if ".adapter." in name} | arrays
    adapters = {name: LazyArray(parameters[name], arrays.__getitem__, name) for name in arrays}
    return config, jax.tree.unflatten(jax.tree.structure(model), [(base | adapters)[name] for name in parameters])
