"""A hash of a jaxpr: equal for equal programs, and for no others."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.layout import Layout, with_layout_constraint

from generator.programs.canonical import JaxprHasher, UnknownType

X = jax.ShapeDtypeStruct((4, 8), jnp.float32)
POLICIES = jax.checkpoint_policies


def digest(function, *arguments):
    arguments = arguments or (X, X)
    names = [f"in {number}" for number, _ in enumerate(jax.tree.leaves(arguments))]
    jaxpr, out = jax.make_jaxpr(function, return_shape=True)(*arguments)
    return JaxprHasher().program(jaxpr, names, [str(n) for n, _ in enumerate(jax.tree.leaves(out))])


def scores(x, y, axis=-1, mask=-1e30):
    return jnp.where(y > 0, x - jnp.mean(x, axis=axis, keepdims=True), mask)


def reference(x, y):
    return jax.nn.softmax(scores(x, y)) @ y.T


def in_another_order(a, b):
    positive = b > 0
    unused = jnp.sin(a) + jnp.cumsum(b)[3]
    middle = jnp.mean(a, axis=-1, keepdims=True)
    del unused
    transposed = b.T
    return jax.nn.softmax(jnp.where(positive, a - middle, -1e30)) @ transposed


def one_name(x):
    return x * 2


def another_name(x):
    return x * 2


def laid_out(*order):
    return lambda x: with_layout_constraint(x * 2, Layout(order))


def loop(step, unroll=1):
    return lambda x: jax.lax.scan(lambda c, _: (step(c), jnp.sum(c)), x, None, length=3, unroll=unroll)


def weighted(weights):
    return lambda x: jax.lax.map(lambda row: row * weights, x)


def with_rule(factor):
    @jax.custom_vjp
    def f(x):
        return x * x

    f.defvjp(lambda x: (f(x), x), lambda x, g: (factor * x * g,))
    return f


def gradient(function):
    return jax.grad(lambda x: function(x).sum())


def with_remat(policy):
    return gradient(jax.checkpoint(lambda z: jnp.sin(jnp.sin(z)), policy=policy))


def kernel(factor, block, name="kernel"):
    def body(x, out):
        out[...] = x[...] * factor

    body.__name__ = name
    spec = pl.BlockSpec(block, lambda i: (i, 0))
    options = {"in_specs": [spec], "out_specs": spec, "out_shape": X, "interpret": True}
    return functools.partial(pl.pallas_call(body, grid=(4 // block[0],), **options))


EQUAL = {
    "names, order and dead lines": (reference, in_another_order, X, X),
    "name of a compiled part": (jax.jit(one_name), jax.jit(another_name), X),
    "layout": (laid_out(0, 1), laid_out(0, 1), X),
    "dead line in a loop": (loop(lambda c: c * 2), loop(lambda c: (jnp.cos(c), c * 2)[1]), X),
    "rule of a gradient that is not taken": (with_rule(2.0), with_rule(3.0), X),
    "policy of remat": (with_remat(POLICIES.nothing_saveable), with_remat(POLICIES.nothing_saveable), X),
    "name of a kernel": (kernel(2.0, (2, 8)), kernel(2.0, (2, 8), "other"), X),
}
DIFFERENT = {
    "constant": (reference, lambda x, y: jax.nn.softmax(scores(x, y, mask=-1e29)) @ y.T),
    "sign": (scores, lambda x, y: jnp.where(y > 0, x + jnp.mean(x, -1, keepdims=True), -1e30)),
    "comparison": (scores, lambda x, y: jnp.where(y >= 0, x - jnp.mean(x, -1, keepdims=True), -1e30)),
    "axis": (reference, lambda x, y: jax.nn.softmax(scores(x, y, axis=0)) @ y.T),
    "axis of a softmax": (reference, lambda x, y: jax.nn.softmax(scores(x, y), 0) @ y.T),
    "inputs exchanged": (reference, lambda x, y: reference(y, x)),
    "precision": (reference, lambda x, y: jnp.matmul(jax.nn.softmax(scores(x, y)), y.T, precision="highest")),
    "dtype": (reference, lambda x, y: reference(x.astype(jnp.bfloat16).astype(jnp.float32), y)),
    "barrier": (reference, lambda x, y: reference(jax.lax.optimization_barrier(x), y)),
    "compiled apart": (reference, jax.jit(reference)),
    "computed twice": (lambda x, y: jnp.sin(x) * jnp.sin(x), lambda x, y: (z := jnp.sin(x)) * z),
    "layout": (laid_out(0, 1), laid_out(1, 0), X),
    "body of a loop": (loop(lambda c: c * 2), loop(lambda c: c * 3), X),
    "unrolled loop": (loop(lambda c: c * 2), loop(lambda c: c * 2, unroll=3), X),
    "constants of a part": (weighted(jnp.arange(8.0)), weighted(jnp.arange(8.0) + 1), X),
    "rule of a gradient": (gradient(with_rule(2.0)), gradient(with_rule(3.0)), X),
    "policy of remat": (with_remat(POLICIES.nothing_saveable), with_remat(POLICIES.everything_saveable), X),
    "constant of a kernel": (kernel(2.0, (2, 8)), kernel(3.0, (2, 8)), X),
    "grid of a kernel": (kernel(2.0, (2, 8)), kernel(2.0, (1, 8)), X),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_programs(name):
    one, two, *arguments = EQUAL[name]
    assert digest(one, *arguments) == digest(two, *arguments)


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_programs(name):
    one, two, *arguments = DIFFERENT[name]
    assert digest(one, *arguments) != digest(two, *arguments)


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
        return  # an unknown type is never guessed
    assert not same


def test_unknown_type_is_an_error():
    with pytest.raises(UnknownType, match="object"):
        JaxprHasher().key(object())


def test_implementation_of_random_numbers_is_known_by_name():
    """Not by the addresses of its functions, which differ from process to process."""
    jaxpr = jax.make_jaxpr(lambda: jax.random.split(jax.random.key(0)))()
    keys = [repr(JaxprHasher().key(x)) for equation in jaxpr.eqns for x in equation.params.values()]
    assert any("fry" in key for key in keys) and not any(" at 0x" in key for key in keys)
