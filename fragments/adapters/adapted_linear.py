"""Several LoRA adapters beside one model, of which each sequence of a batch has its own.

The matrices of all adapters stand side by side, so that a step has two products for all of them, whichever its
sequences have.

Source: Hu et al. 2021, arXiv 2106.09685, section 4.1; Chen et al. 2023, arXiv 2310.18547 (adapters of one batch).
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from generator.language import excludes, point
from generator.language.roles import RULES, Config, Decoder, InputError, Linear, product, read_adapter

excludes("latent_attention", "dora")  # which read the kernel of a map


class AdaptedLinear(nnx.Module):
    """A linear map, and what the adapter of each sequence adds.

    Args:
        down, up: matrices of all adapters, along their inner sizes one after the other; `up` has their scales.
        owners: number of the adapter of each inner place, from 1.
        names: of all adapters, by their numbers.
    """

    def __init__(self, linear: Linear, down: Array, up: Array, owners: tuple[int, ...], names: tuple[str, ...]):
        x, kernel, y = linear.equation.replace("->", ",").split(",")
        first, second = ("".join(letter for letter in kernel if letter not in side) for side in (y, x))
        inner = "".join(letter for letter in x if letter not in kernel) + "r"
        self.equations = f"{x},{first}r->{inner}", f"{inner},r{second}->{y}"
        self.linear, self.owners, self.names = linear, owners, names
        axes = dict(zip(kernel, linear.kernel.axes, strict=True))
        self.down = nnx.Param(down, axes=(*map(axes.get, first), None))
        self.up = nnx.Param(up, axes=(None, *map(axes.get, second)))
        self.chosen: Array | None = nnx.data(None)  # [..., B]: number of each sequence's adapter, 0 for none

    def __call__(self, x: Array) -> Array:
        inner = product(self.equations[0], x, self.down.get_value())  # [B, T, R]
        is_own = self.chosen[:, None, None] == jnp.array(self.owners)
        return self.linear(x) + product(self.equations[1], jnp.where(is_own, inner, 0), self.up.get_value())


def choose_adapters(model: Decoder, numbers: Array) -> None:
    """Sets the adapter of each sequence of a batch, by number [B]."""
    for _, adapted in nnx.iter_modules(model):
        if isinstance(adapted, AdaptedLinear):
            stack = adapted.down.shape[: -len(adapted.down.axes)]  # of layers
            adapted.chosen = jnp.broadcast_to(numbers, (*stack, *numbers.shape))


def adapter_names(model: Decoder) -> tuple[str, ...]:
    return next((module.names for _, module in nnx.iter_modules(model) if isinstance(module, AdaptedLinear)), ())


def adapter_directories(modules: tuple[str, ...]) -> dict[str, str]:
    """Returns the directory of each adapter of --lora-modules, by its name."""
    named = [module.partition("=")[::2] for module in modules]
    if wrong := [module for module, pair in zip(modules, named, strict=True) if not all(pair)]:
        raise InputError(f"--lora-modules {wrong[0]}: must be NAME=DIR, with a directory of peft")
    directories = dict(named)
    if len(directories) < len(named):
        names = ", ".join(name for name, _ in named)
        raise InputError(f"--lora-modules: one of {names} is there twice: give each adapter a name of its own")
    return directories


def load_adapters(config: Config, model: Decoder, modules: tuple[str, ...], mesh: Mesh | None) -> None:
    """Puts the adapters of --lora-modules beside the linear maps of a model, in the dtype of the computation.

    Raises InputError for a directory that holds no adapter of this model.
    """
    directories = adapter_directories(modules)
    adapters = [read_adapter(directory, config) for directory in directories.values()]
    by_path = dict(nnx.iter_modules(model))
    for path, linear in by_path.items():
        name = ".".join(map(str, path)) + ".adapter"
        present = [(number, adapter) for number, adapter in enumerate(adapters, 1) if f"{name}.down" in adapter.arrays]
        if present:
            point("load_adapters.map", name, linear)
            owners = tuple(number for number, adapter in present for _ in range(adapter.rank))
            x, kernel, _ = linear.equation.replace("->", ",").split(",")
            axis = -1 - sum(letter not in x for letter in kernel)  # of the rank, before the outputs
            down = np.concatenate([adapter.arrays[f"{name}.down"] for _, adapter in present], -1)
            ups = [adapter.arrays[f"{name}.up"] * (adapter.alpha / adapter.rank) for _, adapter in present]
            up = np.concatenate(ups, axis)
            adapted = AdaptedLinear(linear, down, up, owners, tuple(directories))
            for side in adapted.down, adapted.up:
                side.set_value(placed(side.get_value().astype(config.dtype), side.axes, mesh))
            setattr(by_path[path[:-1]], path[-1], adapted)


def placed(x: np.ndarray, axes: tuple[str | None, ...], mesh: Mesh | None) -> Array:
    """Returns an array on the devices of a mesh, split by its last logical axes."""
    if mesh is None:
        return jnp.asarray(x)
    logical = (None,) * (x.ndim - len(axes)) + axes
    sharding = NamedSharding(mesh, PartitionSpec(*(RULES.get(name) for name in logical)))
    return jax.make_array_from_callback(x.shape, sharding, x.__getitem__)


def keep_adapters(served: Decoder, model: Decoder) -> None:
    """Puts the adapters beside the linear maps of one model beside those of another, with newer weights."""
    modules = dict(nnx.iter_modules(model))
    for path, module in nnx.iter_modules(served):
        if isinstance(module, AdaptedLinear):
            linear: Linear = modules[path]
            adapted: AdaptedLinear = jax.tree.map(lambda x: x, module)  # the other model keeps its own
            adapted.linear = linear
            setattr(modules[path[:-1]], path[-1], adapted)
