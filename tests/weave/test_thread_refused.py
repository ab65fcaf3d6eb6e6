"""What the threading operator follows and what it refuses: what it cannot see, and what could be wrong silently."""

from __future__ import annotations

import pytest
from miniature import VALUE, message, refused, run, woven

IMPORTS = "import functools, jax\nfrom jax import checkpoint, lax\nfrom flax import nnx\n"
HEAD = IMPORTS.replace("functools, jax", "functools\nimport jax") + "from generator.language import point\n\n"
INNER = 'def inner(x):\n    point("here", x)\n    return x\n\n'
BLOCK = 'class Block:\n    def __call__(self, x):\n        point("here", x)\n        return x\n\n'
SITE = "def site(batch):\n    return {}\n"
LOST = "threading cannot follow"
USED = f"inner must take or return p, and is used here in a way that {LOST}"
FOLLOW = f"Block.__call__ must take or return p, and this may be an instance of Block that is used in a way that {LOST}"
NAMED = "{} must have the value {}, and uses the name for something else here"


class TestInstances:
    """An instance has no name: whatever is called and may be one, must declare its class."""

    OTHER = "\ndef other(batch: Block):\n    batch(1)\n"  # calls the method by its type
    PROVIDED = VALUE + '\n    @provide("other")\n    def p(batch):\n        return 1\n'

    @pytest.mark.parametrize(
        ("definitions", "use", "expected"),
        [
            ("", "jax.vmap(Block())(batch)", FOLLOW),
            ("BLOCKS = [Block()]\n\n", "BLOCKS[0](batch)", FOLLOW),
            ("class Wide(Block):\n    pass\n\n", "[Wide()][0](batch)", FOLLOW.replace("of Block", "of Wide")),
            ("", "[Block().again][0](batch)", FOLLOW.replace("Block.__call__", "Block.again")),
        ],
    )
    def test_message(self, definitions, use, expected):
        again = "    def again(self, x):\n        return self(x)\n\n"
        host = f"{HEAD}{BLOCK[:-1]}{again}{definitions}{SITE.format(use)}{self.OTHER}    return batch.again(1)\n"
        assert message(refused(host=host, value=self.PROVIDED)) == expected

    def test_a_class_that_a_decorator_or_a_function_makes(self):
        for made in (
            "def mark(c):\n    return c\n\n@mark\nclass Wide(Block):\n    pass\n\n",
            "def f():\n    class Wide(Block):\n        pass\n\n",
        ):
            text = message(refused(host=HEAD + BLOCK + made + SITE.format("1") + self.OTHER, value=self.PROVIDED))
            assert text == f"Block.__call__ must take or return p, and this makes another class, which {LOST}"

    def test_what_is_called_says_what_it_is(self):
        host = (
            f"{HEAD}{BLOCK}def act(f: Callable, x):\n    return f(x)\n\ndef site(batch):\n    block: Block = Block()\n"
            "    sizes = [len(str(type(layer))) for layer in [block]]\n    return block(batch) + act(abs, -1) + 0 * sizes[0]\n"
        )
        assert run("from typing import Callable\n" + IMPORTS + woven(host=host, value=VALUE))["site"](1) == 12
        given = host.replace("act(abs, -1)", "act(block, -1)")
        for opaque in (host.replace(": Callable", ""), given, given.replace("Callable", "object")):
            assert message(refused(host=opaque, value=VALUE)) == FOLLOW


class TestFunctions:
    """A name of a function is a call; jax.checkpoint around it is followed, by what its name means; nothing else."""

    @pytest.mark.parametrize(
        "wrapped", ["jax.checkpoint(inner)", "checkpoint(inner)", "nnx.remat(inner)", "save(inner)"]
    )
    def test_followed(self, wrapped):
        host = f"def site(batch):\n    save = functools.partial(jax.checkpoint, prevent_cse=False)\n    return {wrapped}(batch)\n"
        assert run(IMPORTS + woven(host=HEAD + INNER + host, value=VALUE))["site"](1.0) == 11

    @pytest.mark.parametrize("decorator", ["jax.jit", "functools.partial(jax.jit, static_argnames='x')"])
    def test_decorators_that_are_followed(self, decorator):
        text = woven(host=f"{HEAD}@{decorator}\n{INNER}{SITE.format('inner(batch)')}", value=VALUE)
        assert run(IMPORTS + text)["site"](1) == 11

    def test_message(self):
        host = HEAD + INNER + SITE.format("inner(1), jax.grad(inner)(batch)")
        assert message(refused(host=host, value=VALUE)) == USED

    @pytest.mark.parametrize(
        ("decorator", "word"),
        [(word, word) for word in ("functools.cache", "twice", "property", "jax.grad")]
        + [("functools.partial(jax.jit, static_argnums=(1,))", "functools.partial")],
    )
    def test_a_decorator_that_may_do_anything(self, decorator, word):
        host = f"def twice(f):\n    return lambda x: f(f(x))\n\n@{decorator}\n{INNER}" + SITE.format("inner(batch)")
        assert (
            message(refused(host=HEAD + host, value=VALUE))
            == f"inner must take or return p, and is decorated with {word}, which {LOST}"
        )

    @pytest.mark.parametrize(
        ("parameters", "use", "expected"),
        [
            (
                "(x)",
                "map(inner, [batch])",
                "model/value needs 'p', and inner (fragments/model/host.py:1), which is called by "
                "nobody, does not have it",
            ),
            ("(x)", "inner(*[batch])", "p must be passed to inner here, after *arguments"),
            ("(x)", "inner(x for x in batch)", "p must be passed to inner here, after a generator"),
            ("(x, *rest)", "inner(batch)", "inner must take p, and its parameters leave no place for it"),
            ("(x, /)", "inner(batch)", "inner must take p, and its parameters leave no place for it"),
            ("(x)", "jax.lax.scan(inner, 0, batch)", "a scan cannot pass p to inner (fragments/model/host.py:1)"),
        ],
    )
    def test_no_place(self, parameters, use, expected):
        host = INNER.replace("(x)", parameters, 1) + SITE.format(use)
        assert message(refused(host=host, value=VALUE)) == expected


class TestNames:
    """Where a function has a value, its host has no other use for the name."""

    BETWEEN = INNER + "def between{}\n\n" + SITE.format("between(batch)")

    @pytest.mark.parametrize(
        ("host", "function"),
        {
            BETWEEN.format("(x):\n    p = 2\n    return inner(x)"): "between",
            BETWEEN.format("(x):\n    if x:\n        p = 2\n    return inner(x)"): "between",
            BETWEEN.format("(x, p=2):\n    return inner(x)"): "between",
            BETWEEN.format("(x):\n    return inner(x) + p(x)"): "between",
            INNER.replace("(x)", "(x, p=2)", 1) + SITE.format("inner(batch)"): "inner",
            INNER + SITE.format("inner(batch)").replace("return", "p = 3\n    return"): "site",
            f"{INNER}def site(batch):\n    def own(p):\n        return inner(p)\n    return own(batch)\n": "site.own",
        }.items(),
    )
    def test_inward(self, host, function):
        assert message(refused(host=host, value=VALUE)) == NAMED.format(function, "p")

    @pytest.mark.parametrize("use", ["[inner(p) for p in [batch]]", "(lambda p: inner(p))(batch)"])
    def test_a_call_where_the_name_is_another_variable(self, use):
        text = message(refused(host=INNER + SITE.format(use), value=VALUE))
        assert text == "inner must be passed p here, where p is something else"

    def test_local_names_of_providers_and_splices_are_no_names_of_their_hosts(self):
        value = VALUE.replace("return batch * 10", "step = batch * 10\n        return step")
        host = INNER + 'def between(x):\n    point("middle", x)\n    return inner(x)\n\n'
        host += 'def site(batch):\n    {} = 1\n    point("first", batch)\n    return between(batch) + {}\n'
        own = '@splice("middle")\ndef _(x):\n    {0} = 1000\n    x = x + {0} - {0}\n\n'
        own += '@splice("first")\ndef _(batch, p):\n    p = p + 1\n'
        text = message(refused(host=host.format("step", "step"), value=value, own=own.format("q")))
        assert text.startswith("the provider of p binds step, which site")
        host = host.format("one", "one")
        text = message(refused(host=host, value=value, own=own.format("p")))
        assert text == "between must have the value p, and uses the name for something else here"
        assert run(woven(host=host, value=value, own=own.format("q")))["site"](1) == 13


class TestProviders:
    """A provider has what its site has."""

    AT = "site (fragments/model/host.py:5)"

    @pytest.mark.parametrize(
        ("provider", "expected"),
        [
            ("(tokens):\n    return tokens\n", f"the provider of p reads 'tokens', which {AT} does not have"),
            ("(batch):\n    batch = 1\n    return batch\n", f"the provider of p binds batch, which {AT} has"),
            ("():\n    return batch\n", f"the provider of p uses batch, which is a variable of {AT}"),
            ("(batch):\n    pass\n", "the provider of p does not end in `return VALUE`"),
            (
                "(batch):\n    if batch:\n        return 1\n    return 2\n",
                "a provider cannot return here: its host would return",
            ),
            ('(r):\n    return r\n\n@provide("site")\ndef r(p):\n    return p\n', "p and r are made from each other"),
            (
                '():\n    return 1\n\n@provide("site")\ndef p():\n    return 1\n',
                "model/value (fragments/model/value.py:2) and model/value both provide p at site",
            ),
        ],
    )
    def test_message(self, provider, expected):
        value = f'@provide("site")\ndef p{provider}@splice("here")\ndef _(x, p):\n    x = x + p\n'
        assert message(refused(host=INNER + SITE.format("inner(batch)"), value=value)) == expected

    @pytest.mark.parametrize(
        ("provider", "expected"),
        [
            ('@provide("place")\ndef p(b):\n    return 1\n', "provides p at 'place', which no selected fragment has"),
            (
                "",
                "reads 'p', which the point 'here' (fragments/model/host.py:2) does not show and no selected fragment "
                "provides or emits",
            ),
            (
                '@provide("site", per_layer=True)\ndef p(batch):\n    return batch\n',
                "p has a slice for each layer, and no scan over layers is on the way from site",
            ),
        ],
    )
    def test_no_site(self, provider, expected):
        value = provider + '@splice("here")\ndef _(x, p):\n    x = x + p\n'
        assert message(refused(host=INNER + SITE.format("inner(batch)"), value=value)).endswith(expected)

    def test_a_value_of_all_layers_where_another_function_has_that_of_one(self):
        scan = "    def body(x, i):\n        return inner(x), i\n\n    x, _ = jax.lax.scan(body, batch, [0, 1])\n"
        other = 'def other(x):\n    point("there", x)\n    return x\n\n\n'
        host = f"{HEAD}{INNER}{other}def site(batch):\n{scan}    return other(x)\n"
        value = '@provide("site", per_layer=True)\ndef p(batch):\n    return [batch, batch]\n\n\n'
        reads = '@splice("there")\ndef _(x, p):\n    x = x + p[0]\n\n\n@splice("here")\ndef _(x, p):\n    x = x + p\n'
        assert (
            message(refused(host=host, value=value + reads))
            == "other takes p of all layers here, and of one layer in a scan"
        )


def test_a_function_that_calls_itself_takes_a_value_along():
    host = INNER.replace(
        "    return", "    if x > 3:\n        return x\n    y = inner(x + 1)\n    return y\n    return"
    )
    value = VALUE.replace("x = x + p", "x = x + p // 10")
    assert run(woven(host=host + SITE.format("inner(batch)"), value=value))["site"](1) == 4
