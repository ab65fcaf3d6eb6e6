"""Where the threading operator puts parameters, arguments and results. Each result is run as well as read."""

from __future__ import annotations

import pytest
from miniature import run, tidy, woven

VALUE = """
    from generator.marks import provide, splice

    @provide("site")
    def p(batch):
        return batch * 10

    @splice("here")
    def _(x, p):
        x = x + p
"""


def check(before: str, after: str, result: object, value: str = VALUE, argument: object = 1) -> None:
    """Weaves `before` with the value p, compares, and runs `site`."""
    text = woven(host=before, value=value)
    assert text == tidy(after)
    assert run(text)["site"](argument) == result


class TestParameters:
    """A new parameter stands after those without defaults, so that calls stay short."""

    def test_by_position(self):
        check(
            """
            def inner(x):
                point("here", x)
                return x

            def site(batch):
                return inner(batch)
            """,
            """
            def inner(x, p):
                x = x + p
                return x


            def site(batch):
                p = batch * 10
                return inner(batch, p)
            """,
            11,
        )

    def test_before_defaults(self):
        check(
            """
            def inner(x, y=5):
                point("here", x)
                return x + y

            def site(batch):
                return inner(batch), inner(batch, 6), inner(batch, y=7), inner(y=8, x=batch)
            """,
            """
            def inner(x, p, y=5):
                x = x + p
                return x + y


            def site(batch):
                p = batch * 10
                return inner(batch, p), inner(batch, p, 6), inner(batch, y=7, p=p), inner(y=8, x=batch, p=p)
            """,
            (16, 17, 18, 19),
        )

    def test_before_keyword_only_ones(self):
        check(
            """
            def inner(*, x, y=1):
                point("here", x)
                return x + y

            def site(batch):
                return inner(x=batch, y=2)
            """,
            """
            def inner(p, *, x, y=1):
                x = x + p
                return x + y


            def site(batch):
                p = batch * 10
                return inner(x=batch, y=2, p=p)
            """,
            13,
        )

    def test_of_functions_without_any(self):
        check(
            """
            def constant():
                x = 1
                point("here", x)
                return x

            def site(batch):
                return (constant()), [constant() for _ in range(2)]
            """,
            """
            def constant(p):
                x = 1
                x = x + p
                return x


            def site(batch):
                p = batch * 10
                return (constant(p)), [constant(p) for _ in range(2)]
            """,
            (11, [11, 11]),
        )

    def test_of_methods(self):
        check(
            """
            class Base:
                def act(self, x, scale=2):
                    point("here", x)
                    return self.scaled(x) * scale

                @staticmethod
                def scaled(x):
                    return x

            class Model(Base):
                pass

            class Outer:
                model: Model

                def __init__(self):
                    self.model = Model()

                def run(self, x):
                    return self.model.act(x, 3)

            def site(batch):
                outer = Outer()
                return outer.run((batch))
            """,
            """
            class Base:
                def act(self, x, p, scale=2):
                    x = x + p
                    return self.scaled(x) * scale

                @staticmethod
                def scaled(x):
                    return x


            class Model(Base):
                pass


            class Outer:
                model: Model

                def __init__(self):
                    self.model = Model()

                def run(self, x, p):
                    return self.model.act(x, p, 3)


            def site(batch):
                p = batch * 10
                outer = Outer()
                return outer.run((batch), p)
            """,
            33,
        )

    def test_tuples_stay_one_argument(self):
        check(
            """
            def inner(pair):
                x = pair[0]
                point("here", x)
                return x

            def site(batch):
                return inner((batch, 2))
            """,
            """
            def inner(pair, p):
                x = pair[0]
                x = x + p
                return x


            def site(batch):
                p = batch * 10
                return inner((batch, 2), p)
            """,
            11,
        )

    def test_on_lines_of_a_long_call(self):
        text = woven(
            host="""
            def inner(x, y):
                point("here", x)
                return x + y

            def site(batch):
                return inner(
                    batch,  # first
                    2,  # last
                )
            """,
            value=VALUE,
        )
        assert text.endswith("        batch,  # first\n        2,\n        p,  # last\n    )\n")
        assert run(text)["site"](1) == 13


class TestNestedFunctions:
    """A nested function sees what its enclosing function has."""

    def test_closure(self):
        check(
            """
            def outer(batch):
                def inner(x):
                    point("here", x)
                    return x

                if batch:
                    y = inner(batch)
                return [inner(z) for z in (batch, y)]

            def site(batch):
                return outer(batch)
            """,
            """
            def outer(batch, p):
                def inner(x):
                    x = x + p
                    return x

                if batch:
                    y = inner(batch)
                return [inner(z) for z in (batch, y)]


            def site(batch):
                p = batch * 10
                return outer(batch, p)
            """,
            [11, 21],
        )


class TestDefaults:
    """An optional provider lets callers hand the value in, and makes it for those that do not."""

    VALUE = """
        from generator.marks import provide, splice

        @provide("model", optional=True)
        def p(x) -> int:
            step = 100
            return x * step

        @splice("here")
        def _(x, p):
            x = x + p
    """

    def test_callers_may_hand_it_in(self):
        text = woven(
            host="""
            def inner(x):
                point("here", x)
                return x

            def model(x):
                return inner(x)

            def between(x, flag=False):
                return model(x)

            def own(x, p):
                return between(x)

            def site(batch):
                return between(batch), own(batch, 5)
            """,
            value=self.VALUE,
        )
        assert text == tidy(
            """
            def inner(x, p):
                x = x + p
                return x


            def model(x, p=None):
                if p is None:
                    step = 100
                    p = x * step
                return inner(x, p)


            def between(x, flag=False, p=None):
                return model(x, p)


            def own(x, p):
                return between(x, p=p)


            def site(batch):
                return between(batch), own(batch, 5)
            """
        )
        assert run(text)["site"](1) == (101, 6)

    def test_what_cannot_do_without_it_outweighs_what_can(self):
        """`use` reads p itself, so its callers must pass it, whatever `model` could make of nothing."""
        text = woven(
            host="""
            def inner(x):
                point("here", x)
                return x

            def model(x):
                return inner(x)

            def use(x):
                y = model(x)
                point("there", y)
                return y

            def site(batch):
                return use(batch)
            """,
            value=self.VALUE,
            more="""
            @provide("site")
            def p(batch):
                return batch * 7

            @splice("there")
            def _(y, p):
                y = y * p
            """,
        )
        assert "def use(x, p):" in text
        assert run(text)["site"](2) == (2 + 14) * 14


class TestDeclaredParameters:
    """A role may declare a threaded value as its parameter: callers pass it, though their hosts do not."""

    @pytest.mark.parametrize(
        ("head", "host", "call"),
        [
            ("attend(q, p)", "host(x, p)", "attend(x, p)"),
            ("attend(q, *, p)", "host(x, p)", "attend(x, p=p)"),
            ("attend(q, scale=1, p=None)", "host(x, p=None)", "attend(x, p=p)"),  # it can do without
        ],
    )
    def test_caller_passes_it(self, head, host, call):
        text = woven(
            host="""
            def host(x):
                return attend(x)

            def site(batch):
                return host(batch)
            """,
            kernel=f"def {head}:\n    return q + p\n",
            value=VALUE.split("    @splice")[0],
        )
        assert f"def {host}:\n    return {call}\n" in text
        assert run(text)["site"](1) == 11

    def test_a_host_that_passes_it_is_left_alone(self):
        host = "def attend(q, p):\n    return q + p\n\n\ndef site(batch):\n    return attend(batch, 3)\n"
        assert woven(host=host, value=VALUE.split("    @splice")[0]) == host


class TestSeveralValues:
    """Several values travel side by side, in the order in which fragments provide them, with their annotations."""

    def test_annotations(self):
        text = woven(
            host="""
            class Model:
                def run(self, x: int) -> int:
                    point("Model.run", x)
                    return x

                def pair(self, x: int) -> tuple[int, int]:
                    y = self.run(x)
                    return x, y

            def site(batch: int) -> int:
                model = Model()
                a, b = model.pair(batch)
                point("site.end", a, b)
                return a + b
            """,
            values="""
            @provide("site")
            def p(batch) -> int:
                return batch * 10

            @provide("site")
            def s(batch, p) -> str:
                return "x" * p

            @splice("Model.run")
            def _(x, s, p):
                state = len(s) + p
                emit(state)
                x = x + 1

            @splice("site.end")
            def _(a, state):
                a = a + state
            """,
        )
        assert text == tidy(
            """
            class Model:
                def run(self, x: int, p: int, s: str) -> tuple[int, Array]:
                    state = len(s) + p
                    x = x + 1
                    return x, state

                def pair(self, x: int, p: int, s: str) -> tuple[int, int, Array]:
                    y, state = self.run(x, p, s)
                    return x, y, state


            def site(batch: int) -> int:
                p = batch * 10
                s = "x" * p
                model = Model()
                a, b, state = model.pair(batch, p, s)
                a = a + state
                return a + b
            """
        )
        assert run("from typing import Any as Array\n" + text)["site"](1) == 1 + 2 + 20
