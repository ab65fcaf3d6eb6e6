"""Annotations of parameters and results that threading adds."""

from __future__ import annotations

from miniature import run, tidy, woven


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

    def test_several_values_side_by_side(self):
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
                model: Model = Model()
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
        assert text == tidy("""
            class Model:
                def run(self, x: int, p: int, s: str) -> tuple[int, Array]:
                    state = len(s) + p
                    x = x + 1
                    return x, state

                def pair(self, x: int, p: int, s: str) -> tuple[tuple[int, int], Array]:
                    y, state = self.run(x, p, s)
                    return (x, y), state


            def site(batch: int) -> int:
                p = batch * 10
                s = "x" * p
                model: Model = Model()
                (a, b), state = model.pair(batch, p, s)
                a = a + state
                return a + b
            """)
        assert run("from typing import Any as Array\n" + text)["site"](1) == 1 + 2 + 20
