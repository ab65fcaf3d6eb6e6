"""What the threading operator refuses: what it cannot follow, and what could be wrong without a word."""

from __future__ import annotations

import re

import pytest
from miniature import message, refused, run, woven

INWARD = """
    @provide("site")
    def p(batch):
        return batch * 10

    @splice("here")
    def _(x, p):
        x = x + p
"""
INNER = 'def inner(x):\n    point("here", x)\n    return x\n\n'
SITE = "def site(batch):\n    return {}\n"


class TestInward:
    """A value on its way in."""

    @pytest.mark.parametrize(
        ("host", "expected"),
        [
            (
                INNER + "def site(batch):\n    return map(inner, [batch])\n",
                "model/value needs 'p', and inner (fragments/model/host.py:1), which is called by "
                "nobody, does not have it",
            ),
            (
                INNER + "def site(batch):\n    return inner(batch), list(map(inner, [batch]))\n",
                "inner must take or give p, and is used here in a way that threading cannot follow",
            ),
            (
                INNER + "def site(batch):\n    f = jax.jit(inner)\n    return inner(batch), f(batch)\n",
                "inner must take or give p, and is used here in a way that threading cannot follow",
            ),
            (
                INNER + SITE.format("inner(batch)") + "TABLE = {1: inner}\n",
                "inner must take or give p, and is used here in a way that threading cannot follow",
            ),
            (INNER + SITE.format("inner(*[batch])"), "p must be passed to inner here, after *arguments"),
            (INNER + SITE.format("inner(x for x in batch)"), "p must be passed to inner here, after a generator"),
            (
                INNER.replace("(x)", "(x, *rest)", 1) + SITE.format("inner(batch)"),
                "inner must take p, and its parameters leave no place for it",
            ),
            (
                INNER.replace("(x)", "(x, /)", 1) + SITE.format("inner(batch)"),
                "inner must take p, and its parameters leave no place for it",
            ),
            (
                INNER + SITE.format("[inner(p) for p in batch]"),
                "inner must be passed p here, where p is something else",
            ),
            (
                INNER + SITE.format("(lambda p: inner(p))(batch)"),
                "inner must be passed p here, where p is something else",
            ),
            (
                INNER + SITE.format("jax.lax.scan(inner, 0, batch)"),
                "a scan cannot pass p to inner (fragments/model/host.py:1)",
            ),
            (
                INNER + "def between(x):\n    return inner(x) + p(x)\n\n" + SITE.format("between(batch)"),
                "between must take p, and uses the name p for something else",
            ),
            (
                "class A:\n    def act(self, x):\n        point('here', x)\n        return x\n\n"
                "class B:\n    def act(self, x):\n        return x\n\n"
                "def site(batch):\n    a: A = A()\n    b = a\n    return a.act(batch), b.act(batch)\n",
                "A.act must take or give p, and this may be an instance of A that is used in a way that threading cannot follow",
            ),
            (
                "@partial(jax.jit, static_argnums=(1,))\ndef inner(x, y=1):\n    point('here', x)\n    return x\n\n"
                + SITE.format("inner(batch)"),
                "inner must take or give p, and is decorated with partial, which threading cannot follow",
            ),
        ],
    )
    def test_message(self, host, expected):
        assert message(refused(host=host, value=INWARD)) == expected

    def test_nobody_provides_it(self):
        text = refused(host=INNER, value='@splice("here")\ndef _(x, p):\n    x = x + p\n')
        assert text == (
            "fragments/model/value.py:2: model/value reads 'p', which the point 'here' "
            "(fragments/model/host.py:2) does not "
            "show and no selected fragment provides or emits\n"
            '  Write @provide("SITE") def p(...) where it is known, or show it in a host of yours.'
        )

    def test_two_provide_it(self):
        text = refused(host=INNER + SITE.format("inner(batch)"), value=INWARD, more=INWARD.split("    @splice")[0])
        assert text == (
            "fragments/model/more.py:2: model/value (fragments/model/value.py:2) and model/more both "
            "provide p at site\n"
            "  Remove one of them, or exclude one fragment from the other."
        )

    @pytest.mark.parametrize(
        ("provider", "expected"),
        [
            (
                '@provide("place")\ndef p(batch):\n    return 1\n',
                "model/value provides p at 'place', which no selected fragment has",
            ),
            (
                '@provide("site")\ndef p(tokens):\n    return tokens\n',
                "the provider of p reads 'tokens', which site (fragments/model/host.py:5) does not have",
            ),
            (
                '@provide("site")\ndef p(batch):\n    batch = 1\n    return batch\n',
                "the provider of p rebinds batch, which site (fragments/model/host.py:5) has",
            ),
            (
                '@provide("site")\ndef p():\n    return batch\n',
                "the provider of p uses batch, which is a variable of site (fragments/model/host.py:5)",
            ),
            ('@provide("site")\ndef p(batch):\n    pass\n', "the provider of p does not end in `return VALUE`"),
            (
                '@provide("site")\ndef p(batch):\n    if batch:\n        return 1\n    return 2\n',
                "a provider cannot return here: its host would return",
            ),
            (
                '@provide("site", per_layer=True)\ndef p(batch):\n    return batch\n',
                "p has a slice for each layer, and no scan over layers is on the way from site",
            ),
        ],
    )
    def test_provider(self, provider, expected):
        host = INNER + SITE.format("inner(batch)")
        assert (
            message(refused(host=host, value=provider + '@splice("here")\ndef _(x, p):\n    x = x + p\n')) == expected
        )

    def test_a_value_of_all_layers_where_another_function_has_that_of_one(self):
        scan = "    def body(x, i):\n        return inner(x), i\n\n    x, _ = jax.lax.scan(body, batch, [0, 1])\n"
        other = 'def other(x):\n    point("there", x)\n    return x\n\n\n'
        host = f"import jax\n\n\n{INNER}\n\n{other}def site(batch):\n{scan}    return other(x)\n"
        value = '@provide("site", per_layer=True)\ndef p(batch):\n    return [batch, batch]\n\n\n'
        reads = '@splice("there")\ndef _(x, p):\n    x = x + p[0]\n\n\n@splice("here")\ndef _(x, p):\n    x = x + p\n'
        text = message(refused(host=host, value=value + reads))
        assert text == "other takes p of all layers here, and of one layer in a scan"

    def test_providers_in_a_circle(self):
        value = '@provide("site")\ndef p(r):\n    return r\n\n@provide("site")\ndef r(p):\n    return p\n'
        text = refused(
            host=INNER + SITE.format("inner(batch)"), value=value + '@splice("here")\ndef _(x, p):\n    x = p\n'
        )
        assert "p and r are made from each other" in text

    def test_a_local_name_of_a_provider_is_its_own(self):
        value = """
            @provide("site")
            def p(batch):
                step = batch * 10
                return step

            @splice("here")
            def _(x, p):
                x = x + p
        """
        text = woven(host=INNER + "def site(batch):\n    step = 1\n    return inner(batch) + step\n", value=value)
        assert run(text)["site"](1) == 12
        assert "p_step = batch * 10" in text

    def test_a_local_name_of_another_splice_is_not_the_value(self):
        """`between` has a splice with a p of its own: what it passes on is the threaded one all the same."""
        between = 'def between(x):\n    point("middle", x)\n    return inner(x)\n\n'
        own = '@splice("middle")\ndef _(x):\n    p = 1000\n    x = x + p - p\n'
        text = woven(host=INNER + between + SITE.format("between(batch)"), value=INWARD, own=own)
        assert run(text)["site"](1) == 11

    @pytest.mark.parametrize("what", ["(x):\n    p = 2", "(x):\n    if x:\n        p = 2", "(x, p=2):\n    y = x"])
    def test_a_variable_that_has_its_name(self, what):
        host = INNER + f"def site(batch):\n    return between(batch)\n\ndef between{what}\n    return inner(x)\n"
        text = message(refused(host=host, value=INWARD))
        assert re.fullmatch("between must have the value p, and has a (variable|parameter) p of its own", text)

    def test_the_function_that_provides_it_may_not_bind_it_again(self):
        host = INNER + 'def site(batch):\n    point("first", batch)\n    p = 3\n    return inner(batch)\n'
        reads = '@splice("first")\ndef _(batch, p):\n    batch = batch + p\n'
        text = message(refused(host=host, value=INWARD, reads=reads))
        assert text == "site must have the value p, and has a variable p of its own"

    def test_a_splice_may_bind_it_again(self):
        host = INNER + 'def site(batch):\n    point("first", batch)\n    return inner(batch)\n'
        reads = '@splice("first")\ndef _(batch, p):\n    p = p + 1\n'
        assert run(woven(host=host, value=INWARD, reads=reads))["site"](1) == 12

    def test_a_nested_function_whose_parameter_has_its_name(self):
        host = INNER + "def site(batch):\n    def own(p):\n        return inner(p)\n    return own(batch)\n"
        text = message(refused(host=host, value=INWARD))
        assert text == "site.own must have the value p, and has a parameter p of its own"
