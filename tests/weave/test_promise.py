"""Any program is either woven rightly or refused: what a program gives is compared with what it must give.

Each program provides p at `site`, ten times its argument, for a splice at the point `here` that adds it; or emits c, a
hundred times what comes to the point `out`, for a splice that adds it at the point `read`.
"""

from __future__ import annotations

import contextlib
import functools
import math
from textwrap import dedent

import pytest
from miniature import message, operate

from generator.errors import LoomError

PROVIDED = """
@provide("site")
def p(batch):
    return batch * 10

@splice("here")
def _(x, p):
    x = x + p
"""
EMITTED = """
@splice("out")
def _(x):
    c = x * 100
    emit(c)

@splice("read")
def _(y, c):
    y = y + c
"""
INNER = """
def inner(x, y=1):
    point("here", x)
    return x
"""
BLOCK = """
class Block:
    def __call__(self, x):
        point("here", x)
        return x

def use(block: Block, x):
    return block(x)
"""
STEP = """
class Block:
    def step(self, x):
        point("here", x)
        return x
"""
OUT = """
def f(x):
    point("out", x)
    return x + 1
"""


def outcome(host: str, value: str, argument: object) -> object:
    """What `site` gives once the program is woven, or the first line of why it is not."""
    try:
        texts = operate(host=dedent(host), value=dedent(value))
    except LoomError as error:
        return message(str(error))
    names: dict = {"contextlib": contextlib, "functools": functools, "math": math, "jax": _Jax}
    exec("\n".join(text.text for text in texts.values()), names)
    return names["site"](argument)


class _Jax:
    """What the programs use of JAX: here a gradient is the number of the argument that it is of."""

    @staticmethod
    def grad(f, argnums=0):
        return lambda *args, **kwargs: (argnums, f(*args, **kwargs))[1] if argnums else f(*args, **kwargs)

    jit = checkpoint = staticmethod(lambda f, **_: f)


def check(host: str, value: str, expected: object, argument: object = 1) -> None:
    """`expected` is what the program gives, or, after `refused: `, what is said of why it is refused."""
    found = outcome(host, value, argument)
    if isinstance(expected, str) and expected.startswith("refused: "):
        assert isinstance(found, str) and expected.removeprefix("refused: ") in found
    else:
        assert found == expected


FOLLOW = "refused: threading cannot follow"
NAMED = "refused: must have the value {}, and uses the name for something else here"
OF_IT = "refused: is used here in a way that threading cannot follow"


HOLDER = "class O:\n    def __init__(self):\n        self.f = Block()\n    def go(self, x):\n        return self.f(x)\n"


@pytest.mark.parametrize(
    ("more", "last", "expected"),
    [
        ("    def set(self):\n        self.f = abs\n", "o.go(x)", FOLLOW),
        ("def put(o):\n    o.f = abs\n", "o.go(x)", FOLLOW),
        ("class P(O):\n    def __init__(self):\n        self.f = abs\n", "o.go(x) + P().go(x)", FOLLOW),
        ("    def all(self, x):\n        return [self.f(x) for self in [O()]]\n", "o.go(x) + o.all(x)[0]", FOLLOW),
        ("def f(x):\n    Block = dict\n    b = Block()\n    return len(b) + x\n", "o.go(x) + f(x)", 23),
    ],
)
def test_what_may_be_several_things(more, last, expected):
    site = "\ndef site(batch):\n    return use(Block(), batch) + other(batch)\n\ndef other(x):\n    o: O = O()\n"
    check(f"{BLOCK}{HOLDER}{more}{site}    return {last}\n", PROVIDED, expected)


ASKED = '@provide("site")\ndef p(batch):\n    return batch * 10\n'
OPTIONAL = PROVIDED + '@provide("inner", optional=True)\ndef p(x):\n    return 0\n'


@pytest.mark.parametrize(
    ("host", "value", "expected"),
    [
        (INNER + "def site(batch):\n    return inner(batch)\n", OPTIONAL, 11),
        (INNER + "def site(batch):\n    return list(map(inner, [batch]))[0]\n", OPTIONAL, OF_IT),
        (INNER + "def site(batch):\n    return [inner][0](batch)\n", OPTIONAL, OF_IT),
        ("@functools.cache" + INNER + "def site(batch):\n    return inner(batch)\n", OPTIONAL, FOLLOW),
        (
            "def inner(x, p=threaded()):\n    return x + p\n\n"
            "def site(batch):\n    return list(map(inner, [batch]))[0]\n",
            ASKED,
            OF_IT,
        ),
        (
            "class Block:\n    def __call__(self, x, p=threaded()):\n        return x + p\n\n"
            "def site(batch):\n    return [b(batch) for b in [Block()]][0]\n",
            ASKED,
            FOLLOW,
        ),
        (
            "def site(batch):\n    return (lambda x, p=threaded(): x)(batch)\n",
            ASKED,
            "refused: the default of a function's",
        ),
    ],
)
def test_values_that_a_function_can_do_without(host, value, expected):
    check(host, value, expected)


BATCH = PROVIDED.replace("batch * 10", "batch")
ITEM = PROVIDED.replace("batch * 10", 'batch["k"]')


@pytest.mark.parametrize(
    ("body", "value", "argument", "expected"),
    [
        ("    batch = batch + 100\n    return inner(1)\n", BATCH, 5, 6),
        ('    batch["k"] = 100\n    return inner(1)\n', ITEM, {"k": 5}, 6),
        ("    batch.update(k=100)\n    return inner(1)\n", ITEM, {"k": 5}, 6),
        ("    f = lambda batch: inner(batch)\n    return f(1)\n", BATCH, 5, 6),
        ("    return [inner(batch) for batch in [1, 2]][1]\n", BATCH, 5, 7),
        ("    for batch in [1]:\n        y = inner(batch)\n    return y\n", BATCH, 5, 6),
        ('    return f"{inner(1)}"\n', ITEM, {"k": 5}, "6"),
        ("    return inner(1)\n", ITEM, {"k": 5}, 6),
    ],
)
def test_a_provider_gives_its_value_at_the_top(body, value, argument, expected):
    check(f"{INNER}\ndef site(batch):\n{body}", value, expected, argument)


@pytest.mark.parametrize("change", ["change(batch)", "b = batch\n    b['k'] = 100", "del batch['k']"])
def test_an_item_that_something_else_may_change(change):
    host = f"{INNER}\ndef change(b):\n    b['k'] = 100\n\ndef site(batch):\n    {change}\n    return inner(1)\n"
    check(host, ITEM, 6, {"k": 5})


def test_an_attribute_that_changes_before_it_is_passed():
    host = (
        INNER + "class Site:\n    def __init__(self):\n        self.k = 5\n    def go(self, x):\n        self.set()\n"
    )
    host += "        return inner(x)\n    def set(self):\n        self.k = 100\n\ndef site(batch):\n    return Site().go(batch)\n"
    value = PROVIDED.replace('"site"', '"Site.go"').replace("p(batch)", "p(self)").replace("batch * 10", "self.k")
    check(host, value, 6)


@pytest.mark.parametrize(
    ("inner", "then"),
    [
        ("def inner(y):\n    global LAST\n    LAST = f(y)\n    {}\n    return LAST\n", "inner(batch)\n    return LAST"),
        (
            "def inner(y):\n    HOOKS.append(lambda: x)\n    x = f(y)\n    {}\n    return x\n",
            "inner(batch)\n    return HOOKS[0]()",
        ),
        (
            "def inner(y):\n    x = 0\n    def act(y):\n        nonlocal x\n        x = f(y)\n        {}\n        return x\n"
            "    act(y)\n    return x\n",
            "return inner(batch)",
        ),
    ],
)
@pytest.mark.parametrize("block", [False, True])
def test_a_result_that_others_see_keeps_its_name(inner, then, block):
    inner = inner.format('point("there")')
    if block:
        name = "LAST" if "LAST" in inner else "x"
        old = next(line for line in inner.split("\n") if f"{name} = f(y)" in line)
        blank = old[: len(old) - len(old.lstrip())]
        inner = inner.replace(f'{old}\n{blank}point("there")', f'{blank}with point("there"):\n{blank}    {name} = f(y)')
    check(f"LAST = 0\nHOOKS = []\n\ndef f(y):\n    return y + 1\n\n{inner}\ndef site(batch):\n    {then}\n", "", 2)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *{
            f"{OUT}def g(x):\n    _ = 5\n    y = f(x)\n    return y + _\n\ndef m(x):\n    y = f(x)\n"
            '    point("read", y)\n    return y\n\ndef site(batch):\n    return m(batch), g(batch)\n': "refused: g reads _, which",
            "def f(x):\n    c = x * 100\n    emit(c)\n    c = 7\n    return x + c\n": "refused: f emits c and binds it again",
            "def f(x):\n    c = x * 100\n    emit(c)\n    return x + (c := 7)\n": "refused: f emits c and binds it again",
            "def f(x):\n    c = x * 100\n    emit(c)\n    c += 1\n    return x\n": "refused: f emits c and binds it again",
            "def f(x):\n    for c in [1, 2]:\n        emit(c)\n    return x\n": "refused: binds it again, in a loop",
            "def f(x):\n    if x:\n        c = 1\n        emit(c)\n    else:\n        c = 2\n        emit(c)\n"
            "    return x\n": "refused: f emits c and binds it again",
            f"{OUT}def site(batch):\n    y = f(batch)\n    c = 3\n    receive(c)\n    return y + c\n": NAMED.format(
                "c"
            ),
            f"def c():\n    return 1\n{OUT}def site(batch):\n    y = f(batch)\n    z = c()\n    point('read', y)\n"
            "    return y + z\n": NAMED.format("c"),
            "class Block:\n    def f(self, x):\n        point('out', x)\n        return x\n\ndef site(batch):\n"
            "    b: Block = Block()\n    y = b.f(batch)\n    point('read', y)\n    class K:\n        def go(self):\n"
            "            return b.f(2)\n    return y, K().go()\n": FOLLOW,
            "def f(x):\n    point('out', x)\n    yield x\n    return x\n\ndef site(batch):\n    y = f(batch)\n"
            "    point('read', y)\n    return y\n": "refused: f must return c, and is a generator",
            "class B:\n    def __init__(self, x):\n        point('out', x)\n        return None\n\ndef site(batch):\n"
            "    y = B(batch)\n    point('read', y)\n    return y\n": "refused: Python calls it implicitly",
            f"{OUT}def site(batch):\n    y = 0\n    try:\n        y = f(batch)\n    finally:\n"
            "        point('read', y)\n    return y\n": "refused: c may not have a value yet",
            OUT.replace("return x + 1", "while True:\n        return x + 1")
            + "def site(batch):\n    y = f(batch)\n    point('read', y)\n    return y\n": 102,
        }.items(),
        *(
            (OUT + f"def site(batch):\n    y = 0\n    {way}\n    point('read', y)\n    return y\n", expected)
            for way, expected in [
                ("with contextlib.suppress(ValueError):\n        y = f(batch)", "refused: c may not have a value yet"),
                (
                    "try:\n        y = f(batch)\n    except* ValueError:\n        pass",
                    "refused: c may not have a value yet",
                ),
            ]
        ),
    ],
)
def test_outward(host, expected):
    if "def site" not in host:
        host += '\ndef site(batch):\n    y = f(batch)\n    point("read", y)\n    return y\n'
    value = EMITTED if 'point("out"' in host or "point('out'" in host else EMITTED[EMITTED.index('@splice("read")') :]
    check(host, EMITTED[: EMITTED.index('@splice("read")')] if "receive" in host else value, expected)


TWICE = '@splice("here")\ndef _(x):\n    for _ in range(2):\n        proceed()\n'
LOOP = 'def site(batch):\n    x = 0\n    for i in [1, 2, 3]:\n        with point("here", x):\n            if i == 2:\n'
LOOP += "                {}\n            x = x + i\n        x = x + 100\n    return x\n"
MODULE = 'X = 0\n\ndef site(batch):\n    point("here", X)\n    return X\n'
NESTED = 'def site(batch):\n    x = 0\n    {}\n        point("here", x)\n    return x\n'
METHOD = 'class B:\n    {}def go({}x):\n        point("here", x)\n        return x\n\ndef site(batch):\n    return B().go(1)\n'
HELD = 'def site(batch):\n    x = batch\n    with point("here", x):\n        y = x + 1\n    return y\n'


@pytest.mark.parametrize(
    ("host", "body", "expected"),
    [
        (LOOP.format("break"), "for _ in range(2):\n    proceed()", "refused: the statements at"),
        (LOOP.format("continue"), "for _ in range(2):\n    proceed()", "refused: the statements at"),
        (LOOP.format("break"), "if x >= 0:\n    proceed()", 101),
        (HELD, "if x:\n    proceed()", "refused: model/value may leave y without a value"),
        (HELD, "x = x + 1", "refused: model/value may leave y without a value"),
        (HELD, "if x:\n    proceed()\nelse:\n    raise ValueError", 2),
        (HELD, "z = [proceed() for _ in [1]]", "refused: calls proceed() inside a statement"),
        (HELD, "proceed(); x = 1", "refused: several statements on a line"),
        (HELD, "class K:\n    proceed()", "refused: calls proceed() in a function or class of its own"),
        ("", "match x:\n    case int(real=real):\n        x = x + real", "refused: binds real, which is also a name"),
        ("", "match x:\n    case int(real=number):\n        x = x + number", 5),
        ("", "class K:\n    real = 2\nx = x + K.real", 6),
        ("", "def g(real):\n    return real\nx = x + g(real=2)", 6),
        (", size=x", 'x = f"{size=}"', "refused: cannot be written in this f-string"),
        (", size={x}", 'x = f"{size}"', "{1}"),
        (', size={"a": x}', 'x = f"{size}"', "refused: cannot be written in this f-string"),
        (", size=x\n        .real", "x = x + size", 2),
        (", size=x + 1", "g = lambda: size\nx = 100\nx = g()", "refused: model/value binds x, and reads size"),
        (MODULE, "X = X + 1", "refused: rebinds X, which is not a variable"),
        (NESTED.format("def g():"), "x = x + 1", "refused: rebinds x, which is not a variable of g"),
        (NESTED.format("class K:"), "x = 2", "refused: a class in a function can have no points"),
        (METHOD.format("", "self, "), "x = __other(x)", "refused: uses __other, which means another name in a class"),
        (METHOD.format("@staticmethod\n    ", ""), "x = self.k", "refused: reads 'self'"),
    ],
)
def test_splices(host, body, expected):
    """A splice keeps its names, its statements and the values of the point apart from those of its host."""
    if not host:
        host = 'def site(batch):\n    real = 3\n    x = batch\n    point("here", x)\n    return x + real if x != f"{x}" else x\n'
    elif host.startswith(","):
        host = f'def site(batch):\n    x = batch\n    point("here", x{host})\n    return x\n'
    reads = [name for name in ("self", "x", "X", "size", "y") if name in body and (name != "y" or "y =" in body)]
    value = f'@splice("here")\ndef _({", ".join(reads)}):\n' + "".join(f"    {line}\n" for line in body.split("\n"))
    check(host, value, expected)


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        ("    def g(q):\n        return q\n    return g(q=2)", 7),
        ("    q = 2\n    return q", "refused: the provider of p binds q, which site"),
        ("    from collections import deque as q\n    return len(q([1]))", "refused: the provider of p binds q"),
        ("    global q\n    return batch", "refused: "),
    ],
)
def test_a_provider_in_a_site_that_has_its_names(provider, expected):
    value = PROVIDED.replace("    return batch * 10", provider)
    check(f"{INNER}\ndef site(batch):\n    q = 4\n    return inner(batch) + q\n", value, expected)


def test_a_provider_above_a_global():
    host = f"COUNT = [10]\n{INNER}\ndef site(batch):\n    global COUNT\n    return inner(batch)\n"
    check(host, PROVIDED.replace("batch * 10", "COUNT[0] + batch"), "refused: uses COUNT, which is a variable of site")


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
