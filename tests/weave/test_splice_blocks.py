"""Points that hold statements, results that have a name for a point only, and variables that splices share."""

from __future__ import annotations

import pytest
from miniature import refused, run, tidy, without_seams, woven


class TestABlock:
    """`with point(...):` holds statements: a splice replaces them, or says where they go on."""

    HOST = """
        def attend(q):
            with point("attend", q):
                # the plain way
                context = q + 1
            return context
    """

    def test_without_a_splice_they_stay(self):
        plain = "def attend(q):\n    # the plain way\n    return q + 1\n"
        assert without_seams(host=self.HOST) == plain

    def test_replaced(self):
        text = without_seams(host=self.HOST, flash='@splice("attend")\ndef _(q, context):\n    context = q * 5\n')
        assert text == "def attend(q):\n    return q * 5\n"

    def test_wrapped_twice_in_order(self):
        cache = """
            @splice("attend")
            def _(q, context):
                if q < 0:
                    context = 0
                else:
                    proceed()
        """
        scope = """
            @splice("attend", after="cache")
            def _():
                with scope("attention"):
                    proceed()
        """
        assert without_seams(host=self.HOST, scope=scope, cache=cache) == tidy("""
            def attend(q):
                with scope("attention"):
                    if q < 0:
                        context = 0
                    else:
                        # the plain way
                        context = q + 1
                return context
            """)

    def test_two_that_replace_are_refused(self):
        one = '@splice("attend")\ndef _(q, context):\n    context = q\n'
        two = '@splice("attend", after="one")\ndef _(q, context):\n    context = -q\n'
        said = (
            "fragments/model/two.py:2: model/one (fragments/model/one.py:2) and model/two both replace the statements "
            "at fragments/model/host.py:2\n  Select one of the two, or call proceed() in one, to wrap them."
        )
        assert refused(host=self.HOST, one=one, two=two) == said
        for other in 'before="one"', "optional=True":  # no order helps
            assert refused(host=self.HOST, one=one, two=two.replace('after="one"', other)) == said
        two = two.replace("context = -q", "proceed()")
        assert without_seams(host=self.HOST, one=one, two=two) == tidy("def attend(q):\n    return q\n")

    def test_one_that_replaces_goes_first(self):
        one = '@splice("attend")\ndef _():\n    with scope():\n        proceed()\n'
        two = '@splice("attend", after="one")\ndef _(q, context):\n    context = -q\n'
        assert refused(host=self.HOST, one=one, two=two) == (
            "fragments/model/two.py:2: model/two replaces the statements at fragments/model/host.py:2, among them "
            "those of model/one (fragments/model/one.py:2)\n"
            "  Call proceed() where they go, or put this splice first: before=..."
        )
        text = without_seams(host=self.HOST, one=one, two=two.replace("after", "before"))
        assert "with scope():\n        context = -q" in text


class TestAPointBeforeAReturn:
    """A host names a result only for a point: without a splice it reads as if there had been none."""

    HOST = """
        def double(x):
            y = 2 * (
                x + 1
            )  # twice
            point("double.result", y)
            return y
    """
    BLOCK = """
        def double(x):
            with point("double.result", x):
                y = 2 * (x + 1)  # twice
            return y
    """

    @pytest.mark.parametrize(
        ("host", "lines", "body"),
        [
            (HOST, [], ["return 2 * (x + 1)  # twice"]),
            (HOST, ["y = y + 3"], ["y = 2 * (x + 1)  # twice", "return y + 3"]),
            (BLOCK, [], ["return 2 * (x + 1)  # twice"]),
            (BLOCK, ["y = x + x"], ["return x + x"]),
            (BLOCK, ["x = x + 1", "y = x + x"], ["x = x + 1", "return x + x"]),
        ],
    )
    def test_result(self, host, lines, body):
        reads = "x, y" if host == self.BLOCK else "y"
        splice = "\n    ".join([f'@splice("double.result")\ndef _({reads}):', *lines])
        text = without_seams(host=host, spliced=splice) if lines else without_seams(host=host)
        assert text == "\n    ".join(["def double(x):", *body]) + "\n"


class TestASharedVariable:
    """The splices of one fragment in one function share what one of them binds and others read."""

    HOST = """
    def train(steps):
        point("train.start")
        for step in range(steps):
            point("train.step", step)

        def evaluate():
            point("train.evaluate")
    """
    CLOCK = """
    @splice("train.start")
    def _():
        clock, seconds = Clock(), 0

    @splice("train.step", "train.evaluate")
    def _(clock):
        clock.tick()
    """

    def test_is_bound_by_one_and_read_by_others(self):
        other = '@splice("train.start")\ndef _():\n    seconds = {}1\n'
        assert "binds clock, which splices of model/clock share in the host" in refused(
            host=self.HOST, clock=self.CLOCK, other=other.format("clock = ")
        )
        other = other.format("")
        assert woven(host=self.HOST, clock=self.CLOCK, other=other) == tidy("""
            def train(steps):
                clock, seconds = Clock(), 0
                seconds = 1
                for step in range(steps):
                    clock.tick()

                def evaluate():
                    clock.tick()
            """)

    def test_is_bound_at_a_point_in_a_splice_of_another_fragment(self):
        host = 'def f(x):\n    point("f.first", x)\n    with point("f.last", x):\n        point("f.inner", x)\n    return x\n'
        other = '@splice("f.first")\ndef _(x):\n    x = x + 1\n    point("f.made", x)\n'
        last = '@splice("f.last")\ndef _(x):\n    x = 3 * x\n    proceed()\n'
        mine = '@splice("f.made")\ndef _(x):\n    made = x\n\n@splice("f.inner")\ndef _(x, made):\n    x = x + made\n'
        assert run(woven(host=host, other=other, last=last, mine=mine))["f"](1) == 8

    def test_what_is_not_certain_is_refused(self):
        assert "a variable of the host" in refused(host=self.HOST.replace("steps", "clock"), clock=self.CLOCK)
        assert "both share a variable clock" in refused(host=self.HOST, clock=self.CLOCK, other=self.CLOCK)
        never = self.HOST.replace('point("train.start")', 'if steps:\n            point("train.start")')
        assert "may read clock before" in refused(host=never, clock=self.CLOCK)


def test_a_generator_that_nothing_splices_into():
    """It yields nothing; a function that returns an iterator, or computes first, is left as it is."""
    host = """
    def names() -> Iterator[str]:
        \"\"\"Yields names.\"\"\"
        point("names")

    def both() -> Iterator[str]:
        point("both.first")
        point("both.last")

    def given(x) -> Iterator[str]:
        point("given", x)
        return iter(x)
    """
    names = run("from typing import Iterator\n" + woven(host=host))
    assert [[*names["names"]()], [*names["both"]()], [*names["given"]("ab")]] == [[], [], ["a", "b"]]
    more = '@splice("names", "both.last")\ndef _():\n    yield "x"\n'
    text = woven(host=host, more=more)
    assert "yield from ()" not in text and [*run("from typing import Iterator\n" + text)["both"]()] == ["x"]
