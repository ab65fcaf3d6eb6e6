"""A digest of a jaxpr: the same for the same program, and for no other."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.layout import Layout, with_layout_constraint

from generator.programs.canonical import Canonical, UnknownType

X = jax.ShapeDtypeStruct((4, 8), jnp.float32)


def digest(function, *arguments):
    arguments = arguments or (X, X)
    names = [f"in {number}" for number, _ in enumerate(jax.tree.leaves(arguments))]
    jaxpr, out = jax.make_jaxpr(function, return_shape=True)(*arguments)
    return Canonical().program(jaxpr, names, [str(n) for n, _ in enumerate(jax.tree.leaves(out))])


def reference(x, y):
    mean = jnp.mean(x, axis=-1, keepdims=True)
    scaled = jnp.where(y > 0, x - mean, -1e30)
    return jax.nn.softmax(scaled) @ y.T


def in_another_order(a, b):
    positive = b > 0
    unused = jnp.sin(a) + jnp.cumsum(b)[3]
    middle = jnp.mean(a, axis=-1, keepdims=True)
    del unused
    transposed = b.T
    return jax.nn.softmax(jnp.where(positive, a - middle, -1e30)) @ transposed


OTHERS = {
    "constant": lambda x, y: jax.nn.softmax(jnp.where(y > 0, x - jnp.mean(x, -1, keepdims=True), -1e29)) @ y.T,
    "sign": lambda x, y: jax.nn.softmax(jnp.where(y > 0, x + jnp.mean(x, -1, keepdims=True), -1e30)) @ y.T,
    "comparison": lambda x, y: jax.nn.softmax(jnp.where(y >= 0, x - jnp.mean(x, -1, keepdims=True), -1e30)) @ y.T,
    "axis": lambda x, y: jax.nn.softmax(jnp.where(y > 0, x - jnp.mean(x, 0, keepdims=True), -1e30)) @ y.T,
    "axis of a softmax": lambda x, y: (
        jax.nn.softmax(jnp.where(y > 0, x - jnp.mean(x, -1, keepdims=True), -1e30), 0) @ y.T
    ),
    "inputs exchanged": lambda x, y: reference(y, x),
    "precision": lambda x, y: jnp.matmul(
        jax.nn.softmax(jnp.where(y > 0, x - jnp.mean(x, -1, keepdims=True), -1e30)), y.T, precision="highest"
    ),
    "dtype": lambda x, y: reference(x.astype(jnp.bfloat16).astype(jnp.float32), y),
    "stopped gradient": lambda x, y: reference(jax.lax.optimization_barrier(x), y),
    "compiled apart": jax.jit(reference),
}


def test_names_order_and_dead_lines_do_not_count():
    assert digest(reference) == digest(in_another_order)


@pytest.mark.parametrize("other", OTHERS)
def test_all_else_counts(other):
    assert digest(reference) != digest(OTHERS[other])


def test_how_often_a_thing_is_computed_counts():
    assert digest(lambda x, y: jnp.sin(x) * jnp.sin(x)) != digest(lambda x, y: (z := jnp.sin(x)) * z)


def test_name_of_a_compiled_part_does_not_count():
    def one(x):
        return x * 2

    def two(x):
        return x * 2

    assert digest(jax.jit(one), X) == digest(jax.jit(two), X)


def test_layout_in_memory_counts():
    def laid_out(*order):
        return digest(lambda x: with_layout_constraint(x * 2, Layout(order)), X)

    assert laid_out(0, 1) == laid_out(0, 1)
    assert laid_out(0, 1) != laid_out(1, 0)


def test_inside_of_loops_counts():
    def loop(x, step):
        return jax.lax.scan(lambda c, _: (step(c), jnp.sum(c)), x, None, length=3)

    first = digest(lambda x: loop(x, lambda c: c * 2), X)
    assert first == digest(lambda x: loop(x, lambda c: (jnp.cos(c), c * 2)[1]), X)
    assert first != digest(lambda x: loop(x, lambda c: c * 3), X)
    unrolled = digest(lambda x: jax.lax.scan(lambda c, _: (c * 2, jnp.sum(c)), x, None, length=3, unroll=3), X)
    assert first != unrolled


def test_constants_of_a_part_count():
    """Two calls of one traced function that differ in what it holds alone."""
    weights = [jnp.arange(8.0), jnp.arange(8.0) + 1]
    found = {digest(lambda x: jax.lax.map(lambda row, w=w: row * w, x), X) for w in weights}  # noqa: B023
    assert len(found) == 2


def test_rule_of_a_gradient_counts_where_one_is_taken():
    def make(factor):
        @jax.custom_vjp
        def f(x):
            return x * x

        f.defvjp(lambda x: (f(x), x), lambda x, g: (factor * x * g,))
        return f

    two, three = make(2.0), make(3.0)
    assert digest(two, X) == digest(three, X), "no gradient is taken"
    gradients = [digest(jax.grad(lambda x, f=f: f(x).sum()), X) for f in (two, three)]
    assert gradients[0] != gradients[1]


def test_what_remat_keeps_counts():
    def gradient(policy):
        return digest(jax.grad(lambda x: jax.checkpoint(lambda z: jnp.sin(jnp.sin(z)).sum(), policy=policy)(x)), X)

    policies = jax.checkpoint_policies
    assert gradient(policies.nothing_saveable) == gradient(policies.nothing_saveable)
    assert gradient(policies.nothing_saveable) != gradient(policies.everything_saveable)


def test_kernels_of_pallas_count():
    def call(factor, block, name="kernel"):
        def kernel(x, out):
            out[...] = x[...] * factor

        kernel.__name__ = name
        spec = pl.BlockSpec(block, lambda i: (i, 0))
        return functools.partial(
            pl.pallas_call(kernel, grid=(4 // block[0],), in_specs=[spec], out_specs=spec, out_shape=X, interpret=True)
        )

    first = digest(call(2.0, (2, 8)), X)
    assert first == digest(call(2.0, (2, 8), "other"), X)
    assert first != digest(call(3.0, (2, 8)), X)
    assert first != digest(call(2.0, (1, 8)), X)


def test_order_of_effects_counts():
    def printing(*words):
        def function(x, y):
            for word in words:
                jax.debug.print(word, ordered=True)
            return x

        return function

    try:
        same = digest(printing("a", "b")) == digest(printing("b", "a"))
    except UnknownType:
        return  # not known, so not guessed
    assert not same


def test_what_is_not_known_is_an_error():
    with pytest.raises(UnknownType, match="object"):
        Canonical().key(object())


def test_keys_of_random_numbers_are_known_by_name():
    """Not by the addresses of their functions, which differ from process to process."""
    jaxpr = jax.make_jaxpr(lambda: jax.random.split(jax.random.key(0)))()
    found = [repr(Canonical().key(x)) for equation in jaxpr.eqns for x in equation.params.values()]
    assert any("fry" in it for it in found) and not any(" at 0x" in it for it in found)
