"""Where the threading operator puts parameters, arguments and results. Each result is run as well as read."""

from __future__ import annotations

from miniature import VALUE, check_value, run, woven


class TestParameters:
    """A new parameter stands after those without defaults, so that calls stay short."""

    def test_by_position(self):
        check_value(
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
        check_value(
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
        check_value(
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
        check_value(
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
        check_value(
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
                outer: Outer = Outer()
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
                outer: Outer = Outer()
                return outer.run((batch), p)
            """,
            33,
        )

    def test_tuples_stay_one_argument(self):
        check_value(
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


class TestAnnotations:
    """None is among the values on the way where nothing but None stands in for a value that is not handed in."""

    HOST = """
        def inner(x: int) -> int:
            point("here", x)
            return x

        def site(x: int) -> int:
            return inner(x)

        def outer(x: int) -> int:
            return site(x)
    """
    FALLBACK = """
        from generator.language import provide, splice

        @splice("here")
        def _(x, p):
            x = x + p

        @provide("site", optional=True)
        def p(x) -> int:
            return {inner}

        @provide("outer", optional=True)
        def p() -> int:
            return None
    """

    def test_none_that_a_site_further_in_replaces(self):
        text = woven(host=self.HOST, value=self.FALLBACK.replace("{inner}", "x * 10"))
        assert "def inner(x: int, p: int) -> int:" in text
        assert "def outer(x: int, p: int | None = None) -> int:" in text
        assert run(text)["outer"](1) == 11 and run(text)["outer"](1, 2) == 3

    def test_none_that_nothing_replaces(self):
        text = woven(host=self.HOST, value=self.FALLBACK.replace("{inner}", "None").replace("p(x)", "p()"))
        assert "def inner(x: int, p: int | None) -> int:" in text
