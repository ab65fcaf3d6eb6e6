"""The paged attention kernel: the same as plain XLA, on one device and on two."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from generator.language import excludes, point, requires
from generator.language.roles import (
    RULES,
    Cache,
    Pages,
    attend_cached,
    attend_token,
    heads_in_int8,
    make_mesh,
    run_python,
)

requires("attend_token", "int8")
excludes("latent_attention", "attention_sinks", "alibi")


# blocks of 512 positions, the last of which the tables do not fill; the first sequence has nothing cached, the last
# row is padding
BEFORE = np.array([0, 1, 128, 512, 1500, 2047, -1], np.int32)


def kernel_and_sums():
    """Returns `attend_token` and `attend_cached`, compiled, as layers call them."""
    runs = []
    for run in attend_token, attend_cached:
        run = functools.partial(run, scale=0.07)
        point("test_pages_kernel.run", run)
        runs.append(jax.jit(run))
    return runs


def draw_inputs(heads, dtype):
    """Draws a token of each sequence for the second of two layers, with 12 pages each and 4 KV heads."""
    rng = np.random.default_rng(heads)

    def numbers(*shape):
        return jnp.asarray(rng.normal(size=shape), dtype)

    block_tables = rng.integers(1, 12, (len(BEFORE), 17)) * (np.arange(17) * 128 < BEFORE[:, None])  # 0: unused
    key, value = numbers(2, 24, 4, 128, 256).at[:, ::12].set(100)
    new = Cache(jnp.int32(12), numbers(len(BEFORE), 1, 4, 256), numbers(len(BEFORE), 1, 4, 256))
    point("test_pages_kernel.block_tables", new, block_tables)
    pages = Pages(key, value, jnp.asarray(block_tables, jnp.int32))
    return numbers(len(BEFORE), 1, heads, 256), new, pages, BEFORE[:, None]


@pytest.mark.parametrize("heads", [4, 12])
def test_the_kernel_gives_what_sums_give(heads):
    kernel, sums = kernel_and_sums()
    expected = sums(*draw_inputs(heads, jnp.float32))[:-1]
    np.testing.assert_allclose(kernel(*draw_inputs(heads, jnp.float32))[:-1], expected, atol=1e-5)
    rounded = kernel(*draw_inputs(heads, jnp.bfloat16))[:-1]
    assert rounded.dtype == jnp.bfloat16
    np.testing.assert_allclose(rounded.astype(jnp.float32), expected, atol=0.03)
    in_bfloat16 = sums(*draw_inputs(heads, jnp.bfloat16))[:-1]  # which rounds summands, not sums
    np.testing.assert_allclose(*(x.astype(jnp.float32) for x in (rounded, in_bfloat16)), atol=0.002)


def in_int8(cache, pages):
    cache = cache._replace(key=heads_in_int8(cache.key), value=heads_in_int8(cache.value))
    return cache, pages._replace(key=heads_in_int8(pages.key), value=heads_in_int8(pages.value))


def test_int8_is_read_as_the_numbers_it_stands_for():
    kernel, sums = kernel_and_sums()
    q, cache, pages, positions = draw_inputs(12, jnp.float32)
    cache, pages = in_int8(cache, pages)
    meant = [x._replace(key=x.key.astype("float32"), value=x.value.astype("float32")) for x in (cache, pages)]
    expected = sums(q, *meant, positions)[:-1]
    for run in kernel, sums:
        np.testing.assert_allclose(run(q, cache, pages, positions)[:-1], expected, atol=1e-5)


def check_two_devices(int8: bool) -> None:
    """Checks that two devices with half of the heads each exchange none, in the kernel or in pool writes."""
    kernel, sums = kernel_and_sums()
    q, cache, pages, positions = draw_inputs(12, jnp.float32)
    if int8:
        cache, pages = in_int8(cache, pages)
    expected = sums(q, cache, pages, positions)
    stacked = jax.tree.map(lambda x: x[None], cache)
    written = pages.write(stacked, positions)
    mesh = make_mesh(1, 1, 2)
    heads = jax.NamedSharding(mesh, jax.P(None, None, RULES["kv_heads"]))
    pool, whole = jax.NamedSharding(mesh, jax.P(None, RULES["kv_heads"])), jax.NamedSharding(mesh, jax.P())
    q, pages = jax.device_put((q, pages), (heads, Pages(pool, pool, whole)))
    with jax.set_mesh(mesh):
        np.testing.assert_allclose(kernel(q, cache, pages, positions)[:-1], expected[:-1], atol=1e-5)
        write = jax.jit(Pages.write).lower(pages, stacked, positions).compile()
        assert "all-" not in kernel.lower(q, cache, pages, positions).compile().as_text() + write.as_text()
        assert jax.tree.all(jax.tree.map(jnp.array_equal, write(pages, stacked, positions), written))


@pytest.mark.parametrize("int8", [False, True])
def test_two_devices_have_half_of_the_heads_each(int8):
    program = f"from {__name__} import check_two_devices; check_two_devices({int8})"
    process = run_python("-c", program, devices=2)
    assert process.returncode == 0, process.stderr
