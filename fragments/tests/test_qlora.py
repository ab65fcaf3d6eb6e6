"""QLoRA: NF4 by its definition, and steps that equal those of LoRA beside the kernels that are meant."""

import dataclasses
import email
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from scipy.stats import norm

from generator.language import requires
from generator.language.roles import (
    NF4_VALUES,
    PACKAGE,
    SMALL,
    Checkpoints,
    Decoder,
    InputError,
    TrainState,
    adapters_of,
    frozen,
    in_int8,
    in_nf4,
    load_checkpoint,
    load_hf,
    loss,
    make_mesh,
    named_arrays,
    new_state,
    quantized_product,
    random_batch,
    restore_state,
    run_python,
    same,
    save_hf,
    save_state,
    train_step,
    with_adapters,
)

requires("model/qlora")

FORMATS = ["int8", "nf4"]
equal = np.testing.assert_allclose


def quantized(form: str) -> TrainState:
    """Returns a state whose kernels are in a format, and whose adapters add something."""
    state = jax.jit(lambda: new_state(dataclasses.replace(SMALL, quantize_base=form)))()
    random = np.random.default_rng(0)
    adapters = jax.tree.map(lambda x: jnp.float32(random.normal(0, 0.1, x.shape)), adapters_of(state.model))
    return dataclasses.replace(state, model=with_adapters(state.model, adapters))


def meant(state: TrainState) -> TrainState:
    """Returns the state of plain LoRA, with the same adapters beside the kernels that are meant."""
    model = Decoder(dataclasses.replace(SMALL, quantize_base="none"), nnx.Rngs(0))
    model = with_adapters(model, adapters_of(state.model))
    for (ours, _), (theirs, _) in zip(frozen(model), frozen(state.model), strict=True):
        assert isinstance(ours.kernel, nnx.Param) and not isinstance(theirs.kernel, nnx.Param)
        ours.kernel.set_value(theirs.kernel.astype("float32"))
    return dataclasses.replace(state, model=model)


def test_values_of_nf4_are_quantiles_of_a_normal_distribution():
    """Dettmers et al. 2023, appendix E: 8 up to zero, 9 from there; the ends are at the mean of 1 / 32 and 1 / 30."""
    end = (1 / 32 + 1 / 30) / 2
    below, above = norm.ppf(np.linspace(end, 0.5, 8)), norm.ppf(np.linspace(0.5, 1 - end, 9))
    equal(NF4_VALUES, [*below / above[-1], *above[1:] / above[-1]], atol=3e-7)  # those of the paper are in fp32


@pytest.mark.parametrize(("size", "block"), [(128, 64), (96, 32), (6, 2)])
@pytest.mark.parametrize("axis", [-1, -2, -3])
def test_each_number_becomes_the_nearest_of_its_block(size, block, axis):
    kernel = np.random.default_rng(0).normal(size=(2, 3, 4, size)).astype(np.float32)
    kernel[1, 2, 3] = 0
    expected = np.zeros_like(kernel)
    for place in np.ndindex(2, 3, 4, size // block):
        numbers = kernel[place[:3]][place[3] * block :][:block]
        values = np.array(NF4_VALUES) * np.abs(numbers).max()
        nearest = np.abs(numbers[:, None] - values).argmin(axis=1)
        expected[place[:3]][place[3] * block :][:block] = values[nearest]
    kernel, expected = (np.moveaxis(x, -1, axis) for x in (kernel, expected))
    found = jax.jit(in_nf4, static_argnums=1)(kernel, axis)
    assert (found.shape, found.numbers.size, found.scale.size) == (kernel.shape, kernel.size // 2, kernel.size // block)
    equal(found.astype("float32"), expected, rtol=1e-6)
    with pytest.raises(InputError, match="no pairs along an axis of 5: use int8"):
        in_nf4(np.zeros((5, 5)), axis=-1)


@pytest.mark.parametrize("quantize", [in_int8, in_nf4])
def test_no_other_copy_of_a_kernel_is_kept_for_the_backward_pass(quantize):
    x = jnp.ones((2, 128), jnp.bfloat16)
    kernel = quantize(jnp.ones((128, 32)), -2)
    _, backward = jax.vjp(lambda x: quantized_product("TD,DF->TF", x, kernel), x)
    kept = [x for x in jax.tree.leaves(backward) if x.size > kernel.scale.size]
    assert [(x.dtype, x.size) for x in kept] == [(kernel.numbers.dtype, kernel.numbers.size)]


@pytest.mark.parametrize("form", FORMATS)
def test_a_step_is_that_of_lora_on_the_kernels_that_are_meant(form):
    state = quantized(form)
    batch = random_batch(SMALL)
    gradient = jax.jit(jax.grad(lambda x, model: loss(with_adapters(model, x), batch, SMALL)[0]))
    ours, theirs = (named_arrays(gradient(adapters_of(x.model), x.model)) for x in (state, meant(state)))
    assert ours.keys() == theirs.keys() and all(np.abs(x).max() > 0 for x in theirs.values())
    for name, x in theirs.items():
        equal(ours[name], x, atol=1e-5 * np.abs(x).max(), rtol=1e-5)
    (after, ours), (_, theirs) = (jax.jit(train_step, static_argnums=2)(x, batch, SMALL) for x in (state, meant(state)))
    equal(ours["train/loss"], theirs["train/loss"], rtol=1e-6)
    before, after = named_arrays(state.model), named_arrays(after.model)
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == {name for name in before if ".adapter." in name}


@pytest.mark.parametrize("form", FORMATS)
def test_checkpoints_hold_quantized_kernels_to_the_bit(form, tmp_path):
    state = quantized(form)
    config = dataclasses.replace(SMALL, quantize_base=form)
    checkpoints = Checkpoints(str(tmp_path), config).open()
    save_state(checkpoints, 3, state)
    checkpoints.manager.close()
    _, again, _ = restore_state(tmp_path, config)
    assert same(named_arrays(again), named_arrays(dataclasses.replace(state, step=state.step + 3)))
    _, model = load_checkpoint(str(tmp_path), None)  # to export or serve
    for name, x in named_arrays(meant(state).model).items():
        equal(np.asarray(named_arrays(model)[name]), x, rtol=1e-6)


def test_a_kernel_takes_the_bytes_of_its_format():
    sizes = {}
    for form in "none", *FORMATS:
        model = jax.eval_shape(lambda form=form: Decoder(dataclasses.replace(SMALL, quantize_base=form), nnx.Rngs(0)))
        kernels = [x for linear, _ in frozen(model) for x in jax.tree.leaves(linear.kernel)]
        sizes[form] = sum(x.size * x.dtype.itemsize for x in kernels)
    assert 0.25 < sizes["int8"] / sizes["none"] < 0.27 and 0.125 < sizes["nf4"] / sizes["none"] < 0.15


def test_a_run_from_imported_weights(tmp_path):
    """Import, steps, refusals and export, by their commands."""

    def command(module: str, *arguments: object):
        return run_python("-m", f"{PACKAGE.name}.{module}", *map(str, arguments))

    base = jax.jit(lambda: Decoder(SMALL, nnx.Rngs(0)))()
    save_hf(SMALL, base, tmp_path / "base")
    run = tmp_path / "run"
    process = command("checkpoint", "import", tmp_path / "base", run, "--quantize-base", "nf4")
    assert process.returncode == 0, process.stderr
    data = Path(email.__file__).parent / "*.py"
    flags = ["--checkpoint-dir", run, "--tokenizer", "bytes", "--data", data, "--eval-batches", 1, "--batch-size", 1]
    flags += ["--sequence-length", 32, "--mesh-fsdp", 1, "--learning-rate", 1e-2, "--steps", 2]
    wrong = command("train", *flags, "--quantize-base", "int8")
    assert wrong.returncode == 2 and "quantize_base nf4 -> int8" in wrong.stderr
    process = command("train", *flags)
    assert process.returncode == 0, process.stderr
    process = command("checkpoint", "export", run, tmp_path / "merged")
    assert process.returncode == 0, process.stderr
    config, trained = load_checkpoint(str(run), make_mesh(1, 1, 1))
    assert config.quantize_base == "nf4"
    _, merged = load_hf(tmp_path / "merged")
    for (before, axis), (after, _), (linear, _) in zip(*map(frozen, (base, merged, trained)), strict=True):
        kernel = in_nf4(before.kernel.get_value(), axis).astype("float32")
        equal(linear.kernel.astype("float32"), kernel, rtol=1e-6, atol=1e-7)
        equal(after.kernel.get_value(), kernel + linear.adapter.product(), rtol=1e-5, atol=1e-6)
        assert np.abs(linear.adapter.product()).max() > 1e-4
