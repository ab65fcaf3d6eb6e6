"""Low-rank adaptation: trains thin matrices beside each projection, with all other parameters frozen.

Source: Hu et al. 2021, arXiv 2106.09685, section 4.
"""

import dataclasses
import zlib
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax import Array

from generator.language import excludes, point, proceed, splice
from generator.language.roles import (
    Decoder,
    InputError,
    LazyArray,
    Linear,
    PositiveFloat,
    PositiveInt,
    loss,
    make_optimizer,
    named_arrays,
    new_state,
    product,
)

excludes("muon")


class ModelConfig:
    lora_rank: PositiveInt = 8  # inner size of an adapter
    lora_alpha: PositiveFloat = 16.0  # lora_alpha / lora_rank scales the output of an adapter
    lora_targets: str = "all"  # projections with adapters, by name or end of path: query,experts.up; all: every one


class Adapter(nnx.Module):
    """Computes scale * up(down(x)) with two thin matrices beside a kernel, zero at first."""

    def __init__(self, linear: Linear, config: ModelConfig, rngs: nnx.Rngs):
        x, kernel, y = linear.equation.replace("->", ",").split(",")
        down = "".join(letter for letter in kernel if letter in x or letter not in y) + "r"
        up = "r" + "".join(letter for letter in kernel if letter in y or letter not in x)
        inner = "".join(letter for letter in x if letter in y) + "r"
        self.equations = f"{x},{down}->{inner}", f"{inner},{up}->{y}"
        self.merged = f"...{down},...{up}->...{kernel}"
        self.scale = config.lora_alpha / config.lora_rank
        stack = linear.kernel.shape[: -len(kernel)]  # of layers
        sizes = dict(zip(kernel, linear.kernel.shape[len(stack) :], strict=True)) | {"r": config.lora_rank}
        axes = dict(zip(kernel, linear.kernel.axes, strict=True)) | {"r": None}
        shapes = [(*stack, *(sizes[letter] for letter in side)) for side in (down, up)]
        down_values = jax.random.normal(rngs.params(), shapes[0]) / config.lora_rank
        self.down = nnx.LoRAParam(down_values, axes=tuple(axes[letter] for letter in down))
        self.up = nnx.LoRAParam(jnp.zeros(shapes[1]), axes=tuple(axes[letter] for letter in up))
        point("Adapter.parameters", linear, kernel, y, stack, sizes, axes)

    def __call__(self, x: Array) -> Array:
        inner = product(self.equations[0], x, self.down.get_value())
        return self.scale * product(self.equations[1], inner, self.up.get_value())

    def product(self) -> Array:
        """Returns what the adapter adds to the kernel, in its shape."""
        return self.scale * jnp.einsum(self.merged, self.down[...], self.up[...])

    def merge(self, kernel: Array) -> Array:
        """Returns the kernel with what the adapter adds."""
        y = kernel + self.product().astype(kernel.dtype)
        point("Adapter.merge", kernel, y)
        return y


def projections(model: Decoder, targets: str = "all") -> Iterator[tuple[str, Linear]]:
    """Yields the path and module of each projection among the targets; routers are none, as in peft."""
    ends = tuple("" if target == "all" else f".{target}" for target in targets.split(","))
    for path, module in nnx.iter_modules(model):
        name = ".".join(map(str, path))
        if hasattr(module, "adapter") and path[-1] != "router" and f".{name}".endswith(ends):
            yield name, module


def add_adapters(model: Decoder, config: ModelConfig, rngs: nnx.Rngs) -> None:
    for _, linear in projections(model, config.lora_targets):
        linear.adapter = Adapter(linear, config, rngs)


def merge_adapters(model: Decoder) -> Decoder:
    """Returns the model without adapters: each is added to its kernel when that is read."""

    def read(name: str) -> np.ndarray:
        adapter = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), adapters[name])
        with jax.default_matmul_precision("highest"):
            return np.asarray(adapter.merge(np.asarray(kernels[name])))

    kernels, adapters = {}, {}
    model = nnx.clone(model)
    for path, linear in list(nnx.iter_modules(model)):
        if getattr(linear, "adapter", None) is not None:
            name = ".".join(map(str, path))
            kernels[name] = linear.kernel.get_value()
            adapters[name] = linear.adapter
            linear.kernel.set_value(LazyArray(kernels[name], read, name))
            linear.adapter = None
    return model


def adapters_of(model: Decoder) -> nnx.State:
    """Returns the trainable parameters."""
    return nnx.state(model, nnx.LoRAParam)


def start_adapters(arrays: dict[str, Array]) -> dict[str, Array]:
    """Returns initial values for the adapters among named arrays."""

    def start(name: str, shape: tuple[int, ...]) -> Array:
        if name.endswith(".down"):
            return jax.random.normal(jax.random.key(zlib.crc32(name.encode())), shape) / shape[-1]
        return jnp.zeros(shape)

    return {name: start(name, x.shape) for name, x in arrays.items() if ".adapter." in name}


def with_adapters(model: Decoder, adapters: nnx.State) -> Decoder:
    """Returns the model with other values in its adapters."""
    graph, _, base = nnx.split(model, nnx.LoRAParam, ...)
    return nnx.merge(graph, adapters, base)


@splice("Linear.parameters")
def _(self):
    self.adapter: Adapter | None = nnx.data(None)  # set once the layers are stacked


@splice("Linear.output", before="linear_bias")
def _(self, x, y):
    proceed()
    if self.adapter is not None:
        y = y + self.adapter(x)
        point("Linear.adapted", y)


@splice("Attention.latent_kernel", optional=True)
def _(kernel, linear):
    if linear.adapter is not None:
        kernel = linear.adapter.merge(kernel)


@splice("ExpertLinear.parameters", optional=True)
def _(self):
    self.equation = "RI,EIO->RO"  # for a row and the kernel of its expert
    self.adapter: Adapter | None = nnx.data(None)


@splice("ExpertLinear.kernel", optional=True)
def _(self, kernel):
    if self.adapter is not None:  # merged, as products of experts take all rows at once
        kernel = self.adapter.merge(kernel)


@splice("Decoder.parameters")
def _(self, config, rngs):
    add_adapters(self, config, rngs)


@splice("new_state.optimizer")
def _(opt_state, config, model):
    opt_state = make_optimizer(config).init(adapters_of(model))


@splice("train_step.gradient")
def _(gradient, state, config):
    gradient = jax.grad(lambda x, batch: loss(with_adapters(state.model, x), batch, config), has_aux=True)


@splice("train_step.gradients")
def _(gradients, sums, accumulate, state, batch):
    gradients, sums = accumulate(adapters_of(state.model), batch)


@splice("train_step.update")
def _(model, opt_state, config, gradients, state):
    adapters = adapters_of(state.model)
    change, opt_state = make_optimizer(config).update(gradients, state.opt_state, adapters)
    model = with_adapters(state.model, optax.apply_updates(adapters, change))


@splice("train.settings")
def _(config):
    model = jax.eval_shape(lambda: Decoder(config, nnx.Rngs(0)))
    unknown = [target for target in config.lora_targets.split(",") if not any(projections(model, target))]
    if unknown:
        known = ",".join(sorted({name.rpartition(".")[2] for name, _ in projections(model)}))
        raise InputError(f"--lora-targets {config.lora_targets}: no {', '.join(unknown)} among all, {known}")


@splice("Checkpoints.target", before="empty_stacks")
def _(target, step, folder, saved):
    if not any(".adapter." in name for name in saved):  # weights imported without an adapter
        if step > 0:
            remedy = "export it with the package that trained it, and import that"
            raise InputError(f"{folder}: trained without adapters: {remedy}")
        target = {name: x for name, x in target.items() if ".adapter." not in name}


@splice("Checkpoints.read", before="empty_stacks")
def _(arrays, tree, step):
    if step == 0:
        places = {name: x.sharding for name, x in named_arrays(tree).items()}
        started = start_adapters({name: x for name, x in named_arrays(tree).items() if name not in arrays})
        arrays |= {name: jax.device_put(x, places[name]) for name, x in started.items()}
        arrays = {name: arrays[name] for name in places if name in arrays}


@splice("open_hf_model.arrays")
def _(arrays):
    arrays |= start_adapters(arrays)


@splice("save_hf.model")
def _(model):
    model = merge_adapters(model)


@splice("flops.parameters")
def _(parameters):
    # forward and backward, without gradients of kernels; adapters are small and not counted
    parameters *= 2 / 3


@splice("test_checkpoint.split", "test_huggingface.parameters", optional=True)
def _(arrays):
    arrays = {name: x for name, x in arrays.items() if ".adapter." not in name}  # whose inner axis has no name


@splice("test_huggingface.round_trip", "test_convert.command_line", "test_reference.imported", optional=True)
def _(ours, theirs, again, model):
    # exported kernels include the adapters; new adapters add nothing
    ours, theirs = (
        {name: x for name, x in named_arrays(merge_adapters(x)).items() if ".adapter." not in name}
        for x in (again, model)
    )


@splice("test_train.gradient", optional=True)
def _(gradient):
    gradient = adapters_of(gradient)


@splice("test_train.by_heart", optional=True)
def _(config, state):
    # a frozen head with small weights cannot be certain of any token
    state = new_state(dataclasses.replace(config, init_std=0.3))


@splice("test_low_precision.each", optional=True)
def _(each):
    each = 2  # kernels do not learn


@splice("test_adamw.parameters", optional=True)
def _(parameters):
    parameters = adapters_of(parameters)
