"""What the threading operator carries outward through any result, and what it refuses so that nothing is lost."""

from __future__ import annotations

import pytest
from miniature import message, refused, run, woven

OUTWARD = """
    @splice("here")
    def _(x):
        aux = x * 100
        emit(aux)

    @splice("end")
    def _(y, aux):
        y = y + aux
"""
INNER = 'def inner(x):\n    point("here", x)\n    return x\n\n'
END = 'def site(x):\n    {}\n    point("end", y)\n    return y\n'


class TestOutward:
    """A value on its way out: every one emitted is kept."""

    TWO = "y = inner(x)\n    y = inner(y)"

    @pytest.mark.parametrize(
        ("host", "expected"),
        [
            (
                INNER + END.format(TWO),
                "two calls in site give aux, here and at fragments/model/host.py:6: one would be lost",
            ),
            (
                INNER + END.format("for _ in range(2):\n        y = inner(x)"),
                "inner gives aux in each round of a loop: all but the last would be lost",
            ),
            (INNER + END.format("if x:\n        y = inner(x)\n    else:\n        y = 0"), "may not have a value yet"),
            (
                INNER + END.format("y = inner(x) + 1"),
                "inner also returns aux, and its result has no name here",
            ),
            (
                "def inner(x):\n    if x > 5:\n        return x\n    point('here', x)\n    return x\n\n"
                + END.format("y = inner(x)"),
                "inner reads aux here, and aux may not have a value yet",
            ),
            (
                "def inner(x):\n    if x > 5:\n        point('here', x)\n        return x\n\n"
                + END.format("y = inner(x)"),
                "inner must return aux, and may end without a return",
            ),
            (
                "def inner(x):\n    point('here', x)\n    return\n\n" + END.format("y = inner(x)"),
                "inner returns nothing here, beside which aux could go",
            ),
            (
                INNER + END.format("y = jax.value_and_grad(inner)(x)"),
                "no call here leads to where 'aux' is emitted",
            ),
            (
                INNER
                + "def between(x):\n    aux = 1\n    z = inner(x)\n    return z + aux\n\n"
                + END.format("y = between(x)"),
                "inner gives aux here, and between has a variable aux of its own",
            ),
            (
                INNER
                + "def between(x, aux):\n    z = inner(x)\n    return z + aux\n\n"
                + END.format("y = between(x, 1)"),
                "inner gives aux here, and between has a variable aux of its own",
            ),
            (
                INNER
                + END.format(
                    "def block(c, z):\n        c = inner(c)\n        return c, z\n    y, _ = jax.lax.scan(block, x, x)"
                ),
                "site.block is scanned and must also give aux, and does not end in `return carry, None`",
            ),
            (
                INNER
                + END.format(
                    "def block(c, z):\n        c = inner(c)\n        return c, None\n    y = "
                    "jax.lax.scan(block, x, x)[0]"
                ),
                "site.block also returns aux, and its result has no name here",
            ),
        ],
    )
    def test_message(self, host, expected):
        assert expected in message(refused(host=host, value=OUTWARD))

    def test_two_calls_in_two_branches(self):
        text = woven(
            host=INNER + END.format("if x:\n        y = inner(x)\n    else:\n        y = inner(5)"), value=OUTWARD
        )
        assert run(text)["site"](2) == 202 and run(text)["site"](0) == 505

    def test_two_calls_of_which_the_value_has_no_use(self):
        """Callers that no value comes to drop it, in whatever expression the call stands."""
        text = woven(
            host=INNER
            + END.format("y = inner(x)")
            + "def other(x):\n    z = inner(x)\n    inner(1)\n    return z * inner(z)\n",
            value=OUTWARD,
        )
        assert text.endswith("def other(x):\n    z, _ = inner(x)\n    inner(1)\n    return z * inner(z)[0]\n")
        assert run(text)["other"](3) == 9

    @pytest.mark.parametrize(
        ("result", "target", "use"),
        [("x, 1", "y, z", "y"), ("(x, 1)", "(y, z)", "y"), ("x, 1", "pair", "pair[0]"), ("[x, 1]", "[y, z]", "y")],
    )
    def test_results_that_are_tuples(self, result, target, use):
        host = f"def inner(x):\n    point('here', x)\n    return {result}\n\n"
        host += f"def site(x):\n    {target} = inner(x)\n    point('end', y={use})\n    return out\n"
        value = OUTWARD.replace("y = y + aux", "out = y + aux").replace("def _(y, aux)", "def _(y, out, aux)")
        host = host.replace("point('end', y", "out = 0\n    point('end', out, y")
        assert run(woven(host=host, value=value))["site"](1) == 101

    def test_two_splices_that_emit_one_name(self):
        more = '@splice("here", after="value")\ndef _(x):\n    aux = 1\n    emit(aux)\n'
        text = refused(host=INNER + END.format("y = inner(x)"), value=OUTWARD, more=more)
        assert message(text).startswith("model/more emits aux, which is also a name in the host")

    @pytest.mark.parametrize(
        ("statement", "expected"),
        [
            ("emit(x.y)", "emit() takes one local name"),
            ("emit()", "emit() takes one local name"),
            ("receive(x, y)", "receive() takes one local name"),
            ("receive(z)", "nobody emits 'z', which is received here"),
            ("emit(x)", "nobody reads 'x', which is emitted here"),
        ],
    )
    def test_marks(self, statement, expected):
        assert message(refused(host=f"def f(x):\n    {statement}\n    return x\n")) == expected

    def test_no_way_between_them(self):
        text = refused(host=INNER + END.format("y = 1"), value=OUTWARD)
        assert message(text) == "no call here leads to where 'aux' is emitted"
