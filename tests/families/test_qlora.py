"""QLoRA in packages of several families, over devices: what it computes is LoRA beside the kernels that are meant."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from families.devices import MESHES, expert_mesh, on_eight_devices
from families.weaving import woven

# with biases; periods of layers; experts; a cache of latents
NAMES = ["gpt2", "gemma2", "qwen3_moe", "deepseek_v3"]


def compare_formats(package) -> None:
    """The logits and the gradients of adapters, on each mesh, are those of one device with plain kernels."""
    qlora, tokens = package.model, np.arange(8 * 16).reshape(8, 16) % 250
    tiny = dataclasses.replace(package.config.PRESETS["tiny"], dtype="float32")
    sizes = dict(
        layers=2, width=256, mlp_width=256, expert_width=128, kv_rank=256, query_rank=256
    )  # of blocks of 64 that divide over the devices
    tiny = dataclasses.replace(tiny, **{name: size for name, size in sizes.items() if hasattr(tiny, name)})
    random = np.random.default_rng(0)

    def made(form: str):
        return qlora.Decoder(dataclasses.replace(tiny, quantize_base=form), nnx.Rngs(0))

    def value_and_gradient(model, tokens):
        def square(adapters):
            return (qlora.with_adapters(model, adapters)(tokens) ** 2).mean()

        return jax.value_and_grad(square)(qlora.adapters_of(model))

    start = jax.tree.map(lambda x: jnp.float32(random.normal(0, 0.1, x.shape)), qlora.adapters_of(made("none")))
    for form in "int8", "nf4":
        quantized, meant = (qlora.with_adapters(made(name), start) for name in (form, "none"))
        for (ours, _), (theirs, _) in zip(qlora.frozen(meant), qlora.frozen(quantized), strict=True):
            ours.kernel.set_value(theirs.kernel.astype("float32"))
        expected = jax.tree.leaves(jax.jit(value_and_gradient)(meant, tokens))
        meshes = [package.parallel.make_mesh(*sizes) for sizes in MESHES[:1]]
        if hasattr(tiny, "experts"):
            meshes = [expert_mesh(package, 1, 2, 2, 2)]
        for mesh in meshes:
            with jax.set_mesh(mesh):
                layout = package.parallel.abstract(lambda form=form: made(form), mesh)
                placed = jax.device_put(quantized, jax.tree.map(lambda x: x.sharding, layout))
                found = jax.tree.leaves(jax.jit(value_and_gradient)(placed, tokens))
            kernels = [linear.kernel.numbers[...] for linear, _ in qlora.frozen(placed)]
            assert all(x.addressable_shards[0].data.size <= x.size // 2 for x in kernels if x.size)
            for a, b in zip(found, expected, strict=True):
                if a.size:
                    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * np.abs(b).max())
            print(form, "same on", mesh.shape_tuple)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_any_number_of_devices_computes_what_lora_does_with_these_kernels(name, tmp_path):
    package = woven(name, "cpu", tmp_path, parts=("all", "qlora"))
    said = on_eight_devices(compare_formats, package)
    assert len(said) == 2, said
