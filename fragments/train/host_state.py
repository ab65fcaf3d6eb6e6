"""Optimizer state and parameters in host memory, from which each step fetches them.

Source: Ren et al. 2021, arXiv 2101.06840, section 3; Micikevicius et al. 2017, arXiv 1710.03740, section 3.1.
"""

import dataclasses
from collections.abc import Callable

import jax
from jax.sharding import Mesh

from generator.language import proceed, requires, splice
from generator.language.roles import (
    Config,
    TrainState,
    abstract,
    abstract_batch,
    checkpoint_items,
    compile_step,
    fetch,
    new_state,
)

requires("offload")


def move(state: TrainState, config: Config, put: Callable) -> TrainState:
    """Moves what Config.offload names: the optimizer's state, or parameters with their average if there is one.

    Scalars stay where they are.
    """
    names = config.offload.split(",")
    fields = [field.name for field in dataclasses.fields(state)]
    chosen = {x: getattr(state, x) for x in fields if ("optimizer" if x == "opt_state" else "parameters") in names}
    return dataclasses.replace(state, **jax.tree.map(lambda x: put(x) if x.ndim else x, chosen))


def abstract_state(config: Config, mesh: Mesh) -> TrainState:
    """Returns an abstract new_state, with what Config.offload names in host memory."""
    state = abstract(lambda: new_state(config), mesh)
    return move(state, config, lambda x: x.update(sharding=x.sharding.with_memory_kind("pinned_host")))


@splice("new_state.optimizer")
def _(model, config):
    if "parameters" in config.offload.split(","):
        model = jax.tree.map(fetch, model)
    proceed()


@splice("create_state.layout")
def _(config, mesh, layout):
    layout = jax.tree.map(lambda x: x.sharding, abstract_state(config, mesh))


@splice("restore_or_create.target")
def _(config, mesh, target):
    target = checkpoint_items(abstract_state(config, mesh))


@splice("compile.step")
def _(config, mesh, compiled):
    compiled = compile_step(abstract_state(config, mesh), abstract_batch(config, mesh), config)


@splice("train_step.gradient")
def _(state, config):
    on_host, state = state, move(state, config, fetch)  # a copy for the two passes
    proceed()


@splice("train_step.update")
def _(state, config, on_host):
    state = move(on_host, config, fetch)  # another copy, so that the first need not stay until here
    proceed()


@splice("eval_step.start")
def _(model):
    model = jax.tree.map(fetch, model)


@splice("checksums.arrays")
def _(arrays):
    arrays = {name: fetch(x) for name, x in arrays.items()}


@splice("compile.memory")
def _(memory):
    kept, sent = memory.host_argument_size_in_bytes, memory.host_temp_size_in_bytes
    if kept + sent:
        print(f"bytes in host memory per device: state {kept:,}, tensors {sent:,}")
