"""What threading refuses to carry outward."""

from __future__ import annotations

import pytest
from miniature import message, refused, run, woven
from test_thread_refused import INNER, NAMED

EMIT = '@splice("here")\ndef _(x):\n    aux = x * 100\n    emit(aux)\n\n'
OUTWARD = EMIT + '@splice("end")\ndef _(y, aux):\n    y = y + aux\n'
END = 'def site(x):\n    {}\n    point("end", y)\n    return y\n\n'
TWO = "two calls in site return aux, here and at fragments/model/host.py:{}: one would be lost"
LOOPED = "inner returns aux in each round of a loop: all but the last would be lost"
UNSCANNED = "site.block is scanned and must also return aux, and does not end in `return carry, None`"
LATE = "{} reads aux here, and aux may not have a value yet"
SCANNED = "def block(c, z):\n        c = inner(c)\n        return c, {}\n    {} = jax.lax.scan(block, x, x)"


class TestOutward:
    """A value on its way out: every one emitted is kept."""

    @pytest.mark.parametrize(
        ("body", "expected"),
        {
            "y = inner(x)\n    y = inner(y)": TWO.format(6),
            "if x:\n        y = inner(x)\n    else:\n        y = inner(5)": TWO.format(7),
            "for _ in range(2):\n        y = inner(x)": LOOPED,
            "if x:\n        y = inner(x)\n    else:\n        y = 0": LATE.format("site"),
            "y = inner(x) + 1": "inner also returns aux, and its result has no name here",
            "y = jax.value_and_grad(inner)(x)": "no call here leads to where 'aux' is emitted",
            "y = 1": "no call here leads to where 'aux' is emitted",
            "aux = 1\n    y = inner(x)": NAMED.format("site", "aux"),
            SCANNED.format("z", "y, _"): UNSCANNED,
            SCANNED.format("None", "y"): "this scan also returns aux, and its result is not assigned to `carry, _`",
        }.items(),
    )
    def test_site(self, body, expected):
        assert message(refused(host=INNER + END.format(body), value=OUTWARD)) == expected

    @pytest.mark.parametrize(
        ("inner", "expected"),
        {
            ("    point", "    if x > 5:\n        return x\n    point"): LATE.format("inner"),
            (
                '    point("here", x)\n',
                "    if x > 5:\n        point('here', x)\n    ",
            ): "inner must return aux, and may end without a return",
            ("return x", "return"): "inner must also return aux, and returns nothing here",
            (
                "    return",
                "    if x > 3:\n        return x\n    y = inner(x + 1)\n    return",
            ): "aux is carried through inner -> inner, which calls itself",
        }.items(),
    )
    def test_emitter(self, inner, expected):
        host = INNER.replace(*inner) + END.format("y = inner(x)")
        assert message(refused(host=host, value=OUTWARD)) == expected

    @pytest.mark.parametrize(("head", "call"), [("(x):\n    aux = 1", "between(x)"), ("(x, aux):", "between(x, 1)")])
    def test_between(self, head, call):
        host = f"{INNER}def between{head}\n    z = inner(x)\n    return z\n\n" + END.format(f"y = {call}")
        assert message(refused(host=host, value=OUTWARD)) == NAMED.format("between", "aux")

    def test_calls_of_which_the_value_has_no_use(self):
        """Callers that no value comes to drop it, in whatever expression the call stands."""
        other = "def other(x):\n    z = inner(x)\n    inner(1)\n    return z * inner(z)\n"
        text = woven(host=INNER + END.format("y = inner(x)") + other, value=OUTWARD)
        assert text.endswith("def other(x):\n    z, _ = inner(x)\n    inner(1)\n    return z * inner(z)[0]\n")
        assert run(text)["other"](3) == 9

    @pytest.mark.parametrize(
        ("result", "target", "use"),
        [
            *(("x, 1", "y, z", "y"), ("(x, 1)", "(y, z)", "y"), ("(x), (1)", "(y), (z)", "y")),
            *(("((x), 1)", "((y), z)", "y"), ("x, 1", "pair", "pair[0]"), ("[x, 1]", "[y, z]", "y")),
        ],
    )
    def test_results_that_are_tuples_stay_one(self, result, target, use):
        host = INNER.replace("return x", f"return {result}") + f"def site(x):\n    {target} = inner(x)\n"
        host += f"    out = 0\n    point('end', out, y={use})\n    return out\n"
        value = EMIT + '@splice("end")\ndef _(y, out, aux):\n    out = y + aux\n'
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
