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
