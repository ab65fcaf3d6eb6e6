"""Splices and providers keep names apart from those of their hosts, or are refused."""

from __future__ import annotations

import pytest
from test_promise import INNER, PROVIDED, check

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
