"""A value that goes inward arrives, or the program is refused."""

from __future__ import annotations

import functools

import pytest
from test_promise import BLOCK, EMITTED, FOLLOW, INNER, NAMED, OF_IT, OUT, PROVIDED, STEP, _Jax, check


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *{
            "def inner(x, **kw):\n    point('here', x)\n    return x, kw\n\ndef site(batch):\n"
            "    return inner(1, p=3)\n": "refused: leave no place for it",
            "def inner(x, **kw):\n    point('here', x)\n    return x, kw\n\ndef site(batch):\n"
            "    return inner(1, **{'p': 3})\n": "refused: leave no place for it",
            f"{BLOCK}class O:\n    def __init__(self):\n        self.block = Block()\n    @property\n"
            "    def size(self):\n        return self.block(1)\n    @size.setter\n    def size(self, v):\n"
            "        pass\n\ndef site(batch):\n    return use(Block(), batch) + O().size\n": FOLLOW,
            f"{INNER}def site(batch):\n    class K:\n        def go(self, x):\n            return inner(x)\n"
            "    return inner(1) + K().go(1)\n": OF_IT,
            f"{BLOCK}class K:\n    block = Block()\n    f = lambda self, x: self.block(x)\n\ndef site(batch):\n"
            "    return use(Block(), batch) + K().f(1)\n": FOLLOW,
            f"{INNER}T = inner(1)\n\ndef site(batch):\n    return inner(batch)\n": OF_IT,
            f"{BLOCK}BLOCK = Block()\nT = BLOCK(1)\n\ndef site(batch):\n    return use(Block(), batch)\n": FOLLOW,
            f"{STEP}def site(batch):\n    b: Block = Block()\n    return b.step(batch) + Block.step(b, 1)\n": FOLLOW,
            f"{STEP}class S(Block):\n    run = Block.step\n\ndef site(batch):\n    s: S = S()\n"
            "    return s.run(1) + s.step(batch)\n": FOLLOW,
            f"{STEP}    __call__ = step\n\ndef site(batch):\n    b: Block = Block()\n    return b(1) + b.step(batch)\n": OF_IT,
            f"{BLOCK}class S(Block):\n    def __call__(self, x):\n        return x\n\ndef site(batch):\n"
            "    return use(S(), batch)\n": "refused: called by nobody",
            f"class A(B):\n    pass\n\nclass B(A):\n    pass\n{INNER}def site(batch):\n    return inner(batch)\n": "refused: inherit from each other",
            "class A:\n    def __len__(self):\n        x = 1\n        point('here', x)\n        return x\n\n"
            "def site(batch):\n    a: A = A()\n    return a.__len__() + len(a)\n": "refused: Python calls it implicitly",
            f"{BLOCK}def site(batch):\n    block = Block()\n"
            "    return use(block, 1) + pool().submit(block, 1).result()\n": FOLLOW,
            f"{STEP}class Proxy:\n    def __init__(self, inner):\n        self.inner = inner\n"
            "    def __getattr__(self, name):\n        return getattr(self.inner, name)\n\ndef site(batch):\n"
            "    proxy = Proxy(Block())\n    b: Block = Block()\n    return proxy.step(1) + b.step(batch)\n": FOLLOW,
            f"{STEP}Base = Block\n\nclass S(Base):\n    pass\n\ndef site(batch):\n    s: S = S()\n"
            "    b: Block = Block()\n    return b.step(1) + s.step(batch)\n": FOLLOW,
            "def p(x):\n    return x + 1000\n\ndef inner(x):\n    point('here', x)\n    return p(x)\n\n"
            "def site(batch):\n    return inner(batch)\n": NAMED.format("p"),
            "class E(Exception):\n    K = 5\n    def __init__(self, x):\n        point('here', x)\n"
            "        self.x = x\n\ndef site(batch):\n    try:\n        raise E(batch)\n    except E as e:\n"
            "        match e:\n            case E(x=y):\n                return y + E.K\n": 16,
            "class A:\n    @property\n    def size(self):\n        x = 1\n        point('here', x)\n"
            "        return x\n\ndef site(batch):\n    return A().size\n": "refused: Python or a decorator calls it",
        }.items(),
        *(
            (
                STEP.replace("    def step(self, x)", f"    @{kind}\n    def step({first}x)")
                + "def site(batch):\n    b: Block = Block()\n    return b.step(batch) + Block.step(1)\n",
                FOLLOW,
            )
            for kind, first in [("classmethod", "cls, "), ("staticmethod", "")]
        ),
        *(
            (
                "class B:\n    def __init__(self, x):\n        point('here', x)\n        self.x = x\n    @classmethod\n"
                "    def make(cls, x):\n        return cls(x)\n    def copy(self):\n        return type(self)(self.x)\n"
                "    def again(self):\n        return self.__class__(self.x)\n\n"
                f"def site(batch):\n    return B(batch).x + {made}.x\n",
                FOLLOW,
            )
            for made in ("B.make(1)", "B(1).copy()", "B(1).again()")
        ),
        *(
            (
                "class A:\n    def step(self, x):\n        return x\n\nclass B(A):\n"
                + b
                + "\nclass C(A):\n    def step(self, x):\n"
                "        point('here', x)\n        return x\n\nclass D(B, C):\n    pass\n\ndef site(batch):\n    d: D = D()\n"
                "    return d.step(batch)\n",
                expected,
            )
            for b, expected in [
                ("    pass\n", "refused: called by nobody"),
                ("    def step(self, x):\n        return super().step(x)\n", "refused: called by nobody"),
            ]
        ),
    ],
)
def test_inward(host, expected):
    check(host, PROVIDED, expected)


def test_a_parameter_of_a_type_that_is_bound_again():
    host = (
        STEP
        + "class Q:\n    def step(self, x):\n        return x\n\ndef go(b: Block, x):\n    b = Q()\n    return b.step(x)\n"
    )
    check(host + "\ndef site(batch):\n    b: Block = Block()\n    return b.step(batch) + go(b, 1)\n", PROVIDED, FOLLOW)


def test_a_value_that_a_call_would_lose():
    """`between` gives c to nobody where it is called in a way that is not followed."""
    host = (
        OUT
        + "def between(x):\n    y = f(x)\n    return y\n\ndef site(batch):\n    y = f(batch)\n    z = list(map(between, [batch]))\n"
    )
    check(host + '    point("read", y)\n    return y\n', EMITTED, OF_IT)


def test_a_private_value():
    value = PROVIDED.replace("def p(", "def __p(").replace("x, p", "x, __p").replace("+ p", "+ __p")
    check(f"{INNER}\ndef site(batch):\n    return inner(batch)\n", value, "refused: __p is private in a class")


SLICED = PROVIDED.replace('"site"', '"site", per_layer=True').replace("batch * 10", "[10, 20]")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x, _ = jax.lax.scan(body, batch, [0, 0])\nreturn x", 31),
        ("x, _ = jax.lax.scan(body, batch, [0, 0])\nreturn inner(x)", "refused: takes p of all layers here"),
        ("x, _ = jax.lax.scan(body, batch, [0, 0])\ny, _ = body(x, 0)\nreturn y", "refused: takes p apart"),
        (
            "def outer(x, k):\n    def body(x, i):\n        x = inner(x)\n        return x, None\n"
            "    x, _ = jax.lax.scan(body, x, [0, 0])\n    return x, None\n"
            "x, _ = jax.lax.scan(outer, batch, [0, 0])\nreturn x",
            "refused: takes p apart",
        ),
    ],
)
def test_a_value_with_a_slice_for_each_layer(body, expected, monkeypatch):
    scan = staticmethod(
        lambda f, x, xs: functools.reduce(lambda carry, i: (f(carry[0], i)[0], None), zip(*xs, strict=True), (x, None))
    )
    monkeypatch.setattr(_Jax, "lax", type("lax", (), {"scan": scan}), raising=False)
    nested = "" if "outer" in body else "    def body(x, i):\n        x = inner(x)\n        return x, None\n"
    check(
        f"{INNER}\ndef site(batch):\n{nested}" + "".join(f"    {line}\n" for line in body.split("\n")), SLICED, expected
    )
