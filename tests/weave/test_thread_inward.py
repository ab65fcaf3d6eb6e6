"""Where the threading operator puts parameters and arguments. Each result is run as well as read."""

from __future__ import annotations

import pytest
from miniature import PACKAGE, VALUE, message, package, refused, run, woven

PROVIDER = VALUE.split("    @splice")[0]
SITE = "def site(batch):\n    p = batch * 10\n"
INNER = 'def inner(x):\n    point("here", x)\n    return x\n\n'

PLACES = [  # parameters and arguments, before and after, and what site(1) gives
    (
        "x, y=5",
        "x, p, y=5",
        "return inner(batch), inner(batch, 6), inner(batch, y=7), inner(y=8, x=batch)",
        "return inner(batch, p), inner(batch, p, 6), inner(batch, y=7, p=p), inner(y=8, x=batch, p=p)",
        (16, 17, 18, 19),
    ),
    (
        "x=5",
        "p, x=5",
        "return inner(), inner(1), inner(x=2)",
        "return inner(p), inner(p, 1), inner(x=2, p=p)",
        (15, 11, 12),
    ),
    ("*, x, y=1", "p, *, x, y=1", "return inner(x=batch, y=2)", "return inner(x=batch, y=2, p=p)", 13),
    (
        "",
        "p",
        "return (inner()), [inner() for _ in range(2)]",
        "return (inner(p)), [inner(p) for _ in range(2)]",
        (11, [11, 11]),
    ),
    ("pair", "pair, p", "return inner((batch, 2))", "return inner((batch, 2), p)", 11),  # the tuple is one argument
    (
        "x, y",
        "x, y, p",
        "return inner(\n        batch,  # first\n        2,  # last\n    )",
        "return inner(\n        batch,  # first\n        2,\n        p,  # last\n    )",
        13,
    ),
    (
        "x, y=(\n    1  # )\n)",
        "x, p, y=(1)",
        "return inner(  # (\n        (  # (\n            batch  # )\n        )\n    )",
        "return inner((batch), p)  # (  # (  # )",
        12,
    ),
]


@pytest.mark.parametrize(("parameters", "woven_parameters", "calls", "woven_calls", "result"), PLACES)
def test_parameters_stand(parameters, woven_parameters, calls, woven_calls, result):
    first = {"": "    x = 1\n", "pair": "    x = pair[0]\n"}.get(parameters, "")
    last = "    return x + y\n" if "y" in parameters else "    return x\n"
    host = f'def inner({parameters}):\n{first}    point("here", x)\n{last}\ndef site(batch):\n    {calls}\n'
    text = woven(host=host, value=VALUE)
    comment = "  # )" if "# )" in parameters else ""  # which black moves behind the line
    assert text == f"def inner({woven_parameters}):{comment}\n{first}    x = x + p\n{last}\n\n{SITE}    {woven_calls}\n"
    assert run(text)["site"](1) == result


def test_parameters_of_methods_and_nested_functions():
    """A method gets one, by way of an attribute; a nested function sees what is around it."""
    host = (
        'class Base:\n    def act(self, x, scale=2):\n        point("here", x)\n        return self.scaled(x) * scale\n\n'
        "    @staticmethod\n    def scaled(x):\n        return x\n\n\nclass Model(Base):\n    pass\n\n\n"
        "class Outer:\n    model: Model\n\n    def __init__(self):\n        self.model = Model()\n\n"
        "    def run(self, x):\n        def inner(x):\n            return self.model.act(x, 3)\n\n"
        "        return [inner(y) for y in (x, inner(x))]\n\n\n"
        "def site(batch):\n    outer: Outer = Outer()\n    return outer.run((batch))\n"
    )
    edits = [
        ("act(self, x, ", "act(self, x, p, "),
        ('point("here", x)', "x = x + p"),
        ("run(self, x)", "run(self, x, p)"),
    ]
    edits += [
        ("act(x, 3)", "act(x, p, 3)"),
        ("(batch):\n", "(batch):\n    p = batch * 10\n"),
        ("((batch))", "((batch), p)"),
    ]
    text = woven(host=host, value=VALUE)
    for old, new in edits:
        host = host.replace(old, new)
    assert text == host
    assert run(text)["site"](1) == [33, 129]


class TestDefaults:
    """An optional provider lets callers hand the value in, and makes it for those that do not."""

    VALUE = """
        @provide("model", optional=True)
        def p(x) -> int:
            step = 100
            return x * step

        @splice("here")
        def _(x, p):
            x = x + p
    """
    HOST = f"""{INNER}
def model(x):
    return inner(x)

def use(x):
    y = model(x)
    point("there", y)
    return y

def site(batch):
    return use(batch)
"""
    MORE = """
        @provide("site")
        def p(batch):
            return batch * 7

        @splice("there")
        def _(y, p):
            y = y * p
    """

    def test_callers_may_hand_it_in(self):
        host = f"{INNER}def model(x):\n    return inner(x)\n\ndef between(x, flag=False):\n    return model(x)\n\n"
        host += "def own(x, p):\n    return between(x)\n\ndef site(batch):\n    return between(batch), own(batch, 5)\n"
        text = woven(host=host, value=self.VALUE, own='@provide("own")\ndef p(p):\n    return p\n')
        made = "    if p is None:\n        step = 100\n        p = x * step\n"
        assert f"def model(x, p=None):\n{made}    return inner(x, p)\n" in text
        assert "def between(x, flag=False, p=None):\n    return model(x, p)\n" in text
        assert "def own(x, p):\n    return between(x, p=p)\n" in text
        assert "def site(batch):\n    return between(batch), own(batch, 5)\n" in text
        assert run(text)["site"](1) == (101, 6)

    def test_what_cannot_do_without_it_outweighs_what_can(self):
        """`use` reads p itself, so its callers must pass it, whatever `model` could make of nothing."""
        text = woven(host=self.HOST, value=self.VALUE, more=self.MORE)
        assert "def use(x, p):" in text
        assert run(text)["site"](2) == (2 + 14) * 14

    def test_nobody_gets_none_where_it_is_needed(self):
        """`use` may hand p to `model` or not, but reads it too: a caller that has no p is an error, not a None."""
        lonely = self.HOST + "\ndef lonely(x):\n    return use(x)\n"
        text = message(refused(host=lonely, value=self.VALUE, more=self.MORE))
        assert text.startswith("model/more needs 'p', and lonely (fragments/model/host.py:")
        assert text.endswith("), which is called by nobody, does not have it")


class TestDeclaredParameters:
    """A role may declare a threaded value as its parameter: callers pass it, though their hosts do not."""

    @pytest.mark.parametrize(
        ("head", "woven_head", "call"),
        [
            ("attend(q, p=threaded())", "attend(q, p)", "attend(x, p)"),
            ("attend(q, p: int = threaded())", "attend(q, p: int)", "attend(x, p)"),
            ("attend(q, *, p=threaded())", "attend(q, *, p)", "attend(x, p=p)"),
            ("attend(q, p=threaded(), *, scale=1)", "attend(q, p, *, scale=1)", "attend(x, p)"),
        ],
    )
    def test_caller_passes_it(self, head, woven_head, call):
        host = "def host(x):\n    return attend(x)\n\ndef site(batch):\n    return host(batch)\n"
        text = woven(host=host, kernel=f"def {head}:\n    return q + p\n", value=PROVIDER)
        assert f"def host(x, p):\n    return {call}\n" in text and f"def {woven_head}:\n" in text
        assert run(text)["site"](1) == 11

    @pytest.mark.parametrize(
        ("head", "call", "expected"),
        [
            ("pad(q, p)", "pad(x)", "this call of pad omits p"),
            ("pad(q, width)", "pad(x)", "this call of pad omits width"),
            ("pad(q, *, width)", "pad(q=x)", "this call of pad omits width"),
            ("pad(q, width=threaded())", "pad(x)", "pad requests width, which no selected fragment provides"),
            ("pad(q, y=1, p=threaded())", "pad(x)", "p has no default, and follows a parameter that has one"),
            ("pad(q, p=threaded(1))", "pad(x)", "threaded() takes no arguments"),
            ("pad(q, p=[threaded()])", "pad(x)", "threaded() is the default of a function's parameter"),
        ],
    )
    def test_an_argument_that_is_forgotten(self, head, call, expected):
        """Values are not ambient: a call is not filled in since a parameter has the name of one."""
        host = f"def {head}:\n    return q\n\ndef host(x):\n    return {call}\n\ndef site(batch):\n    return host(batch)\n"
        assert message(refused(host=host, value=PROVIDER)) == expected

    @pytest.mark.parametrize(("parameter", "call"), [("p=2", "pad(batch)"), ("p", "pad(batch, 3)")])
    def test_a_host_that_does_not_ask_is_left_alone(self, parameter, call):
        host = f"def pad(q, {parameter}):\n    return q + p\n\n\ndef site(batch):\n    return {call}\n"
        assert woven(host=host, value=PROVIDER) == host


class TestTheOrderOfValues:
    """It is that of their providers, whatever the order of selection: folder by folder, what callers may hand in first,
    what each layer has for itself last, then by name."""

    HOST = """
        import jax
        from generator.language import point

        def inner(x):
            point("inner.here", x)
            return x

        def site(x, layers):
            def step(x, layer):
                return inner(x), None

            return jax.lax.scan(step, x, layers)[0]
        """
    VALUES = (
        ("data/batches", "segments", ", optional=True"),
        ("model/cache", "cache", ", optional=True, per_layer=True"),
        ("model/chunks", "chunks", ""),
        ("model/decoder", "positions", ", optional=True"),
        ("model/rope", "angles", ""),
    )

    @pytest.mark.parametrize("step", [1, -1])
    def test_it(self, step):
        texts = {
            name: f"""
                from generator.language import provide, splice

                @provide("site"{options})
                def {value}(x):
                    return None

                @splice("inner.here")
                def _(x, {value}):
                    print({value})
                """
            for name, value, options in self.VALUES[::step]
        }
        more = 'data = "data.py"\n\n[requirements]\njax = "jax>=0.7"\n\n[config]'
        described = PACKAGE.replace('["model"]', '["site"]').replace("\n[config]", more)
        text = package({"model/host": self.HOST, **texts}, package=described).files["model.py"]
        assert "def inner(x, positions, angles, chunks, cache, segments):" in text
