"""Where the threading operator brings values: nested functions, defaults, roles, several at once; read and run."""

from __future__ import annotations

import pytest
from miniature import PACKAGE, VALUE, check_value, message, package, refused, run, tidy, woven


class TestNestedFunctions:
    """A nested function sees what its enclosing function has."""

    def test_closure(self):
        check_value(
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
        from generator.language import provide, splice

        @provide("model", optional=True)
        def p(x) -> int:
            step = 100
            return x * step

        @splice("here")
        def _(x, p):
            x = x + p
    """
    HOST = """
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
            own='@provide("own")\ndef p(p):\n    return p\n',
        )
        assert text == tidy("""
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
            """)
        assert run(text)["site"](1) == (101, 6)

    def test_what_cannot_do_without_it_outweighs_what_can(self):
        """`use` reads p itself, so its callers must pass it, whatever `model` could make of nothing."""
        text = woven(
            host=self.HOST,
            value=self.VALUE,
            more=self.MORE,
        )
        assert "def use(x, p):" in text
        assert run(text)["site"](2) == (2 + 14) * 14

    def test_nobody_gets_none_where_it_is_needed(self):
        """`use` may hand p to `model` or not, but reads it too: a caller that has no p is an error, not a None."""
        text = refused(
            host=self.HOST + "\n        def lonely(x):\n            return use(x)\n",
            value=self.VALUE,
            more=self.MORE,
        )
        assert text.startswith(
            "fragments/model/more.py:6: model/more needs 'p', and lonely (fragments/model/host.py:16), which is called by "
            "nobody, does not have it\n  It is provided at model (fragments/model/value.py:4), site "
        )


class TestDeclaredParameters:
    """A role may declare a threaded value as its parameter: callers pass it, though their hosts do not."""

    @pytest.mark.parametrize(
        ("head", "host", "call"),
        [
            ("attend(q, p=threaded())", "host(x, p)", "attend(x, p)"),
            ("attend(q, p: int = threaded())", "host(x, p)", "attend(x, p)"),
            ("attend(q, *, p=threaded())", "host(x, p)", "attend(x, p=p)"),
            ("attend(q, p=threaded(), *, scale=1)", "host(x, p)", "attend(x, p)"),
            ("attend(q, scale=1, p=threaded(None))", "host(x, p=None)", "attend(x, p=p)"),  # it can do without
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
        assert f"def {host}:\n    return {call}\n" in text and "threaded" not in text
        assert run(text)["site"](1) == 11

    @pytest.mark.parametrize(
        ("head", "call", "expected"),
        [
            ("pad(q, p)", "pad(x)", "this call of pad leaves out p"),
            ("pad(q, width)", "pad(x)", "this call of pad leaves out width"),
            ("pad(q, *, width)", "pad(q=x)", "this call of pad leaves out width"),
            ("pad(q, width=threaded())", "pad(x)", "pad asks for width, which no selected fragment provides"),
            ("pad(q, y=1, p=threaded())", "pad(x)", "p has no default, and stands after a parameter that has one"),
            ("pad(q, p=threaded(1, 2))", "pad(x)", "threaded() takes at most a default"),
        ],
    )
    def test_an_argument_that_is_forgotten(self, head, call, expected):
        """Values are not ambient: a call is not filled in since a parameter has the name of one."""
        host = f"def {head}:\n    return q\n\ndef host(x):\n    return {call}\n\ndef site(batch):\n    return host(batch)\n"
        assert message(refused(host=host, value=VALUE.split("    @splice")[0])) == expected

    def test_a_default_is_not_replaced(self):
        host = "def pad(q, p=2):\n    return q + p\n\n\ndef site(batch):\n    return pad(batch)\n"
        assert woven(host=host, value=VALUE.split("    @splice")[0]) == host

    def test_a_splice_does_not_read_a_default_for_the_value(self):
        host = 'def pad(x, p=2):\n    point("here", x)\n    return x\n\ndef site(batch):\n    return pad(batch)\n'
        text = message(refused(host=host, value=VALUE))
        assert text == "pad must have the value p, and has a parameter p of its own"

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

                def pair(self, x: int, p: int, s: str) -> tuple[int, int, Array]:
                    y, state = self.run(x, p, s)
                    return x, y, state


            def site(batch: int) -> int:
                p = batch * 10
                s = "x" * p
                model: Model = Model()
                a, b, state = model.pair(batch, p, s)
                a = a + state
                return a + b
            """)
        assert run("from typing import Any as Array\n" + text)["site"](1) == 1 + 2 + 20


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
