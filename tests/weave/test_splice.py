"""The splice operator, by what goes in and what comes out."""

from __future__ import annotations

import pytest
from miniature import refused, run, woven

HOST = """
    from generator.language import point

    class Attention:
        def __call__(self, x):
            q = x
            # the heads, before they meet
            point("Attention.heads", q, size=self.sizes[0] + 1)  # [B, T, N, H]
            return q
"""


def spliced(body: str, head: str = '@splice("Attention.heads")\ndef _(q):') -> str:
    """HOST with a splice of this body."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return woven(host=HOST, rope=f"{head}\n{lines}").split("before they meet\n")[1].split("        return q")[0]


class TestAPoint:
    """`point(...)` is a place: the statements of splices stand there, and the line itself is gone."""

    def test_one_splice_or_none(self):
        norm = """
            @splice("Attention.heads")
            def _(self, q):
                # scaled
                q = self.query_norm(q)  # [B, T, N, H]
        """
        host = "class Attention:\n    def __call__(self, x):\n        q = x\n        # the heads, before they meet\n"
        scaled = "        # scaled\n        q = self.query_norm(q)  # [B, T, N, H]\n"
        assert woven(host=HOST, norm=norm) == f"{host}{scaled}        return q\n"
        assert woven(host=HOST) == f"{host}        return q\n"

    FIELDS = """
        import dataclasses

        from generator.language import point

        @dataclasses.dataclass
        class Sizes:
            rows: int = 1
            point("Sizes.fields")

            def area(self, depth):
                return self.rows * depth
        """

    def test_among_the_fields_of_a_class(self):
        """A field keeps its name, though a method has one like it."""
        more = '@splice("Sizes.fields")\ndef _():\n    depth: float = math.pi  # in metres\n'
        text = woven(host=self.FIELDS, more=f"import math\n{more}")
        assert "    rows: int = 1\n    depth: float = math.pi  # in metres\n\n    def area" in text
        assert "    rows: int = 1\n\n    def area" in woven(host=self.FIELDS)
        assert "defines rows" in refused(host=self.FIELDS, more=more.replace("depth", "rows"))
        assert "reads x" in refused(host=self.FIELDS, more=more.replace("_()", "_(x)"))
        block = self.FIELDS.replace("rows: int = 1", 'with point("Sizes.rows"):\n                rows: int = 1')
        assert woven(host=block) == woven(host=self.FIELDS)
        wider = '@splice("Sizes.rows")\ndef _():\n    rows: int | None = None\n'
        assert woven(host=block, more=wider) == woven(host=self.FIELDS).replace(
            "rows: int = 1", "rows: int | None = None"
        )
        shows = self.FIELDS.replace('"Sizes.fields"', '"Sizes.fields", rows')
        assert "shows nothing" in refused(host=shows)

    def test_what_nobody_reads_keeps_its_name(self):
        host = "def f(x):\n    x, _ = pair(x)\n    point('f.more', x)\n    return x\n"
        head, more = "from generator.language import point\n", '@splice("f.more")\ndef _(x):\n    x, _ = other(x)\n'
        assert "    x, _ = other(x)\n" in woven(host=head + host, more=more)
        host = host.replace("return x", "return x, _")
        assert "binds _, which is also a name in the host" in refused(host=head + host, more=more)

    def test_a_splice_of_which_nothing_is_left(self):
        """As where a setting decides against all that it says: no `pass` stays behind."""
        assert woven(host=HOST, norm='@splice("Attention.heads")\ndef _(q):\n    pass\n') == woven(host=HOST)
        assert spliced("pass") == ""
        host = 'def f(x):\n    y = x\n    with point("f.more"):\n        y = y + 1\n    return y, x\n'
        less = '@splice("f.more")\ndef _():\n    pass\n'
        assert woven(host=host, less=less) == "def f(x):\n    y = x\n    return y, x\n"

    def test_a_block_that_loses_its_only_statement_stays_a_block(self):
        assert woven(host='def f(x):\n    point("a", x)\n') == "def f(x):\n    pass\n"
        host = 'def f(x):\n    if x:\n        point("b", x)\n        point("c", x)\n    return x\n'
        assert woven(host=host) == "def f(x):\n    if x:\n        pass\n    return x\n"

    def test_a_string_over_several_lines_keeps_its_blanks(self):
        host = 'def f(x):\n    if x:\n        point("a", x)\n    return x\n'
        text = woven(host=host, long='@splice("a")\ndef _(x):\n    x = """one\n  two\n"""\n')
        assert run(text)["f"](1) == "one\n  two\n"

    def test_characters_that_break_lines_elsewhere(self):
        text = woven(
            host='def f(x):\n    y = "\u2028\x85"\n    point("a", x, y)\n    return x\n',
            s='@splice("a")\ndef _(x, y):\n    # \u2028\n    x = y + x\n',
        )
        assert run(text)["f"]("!") == "\u2028\x85!"

    def test_a_point_in_a_splice(self):
        text = woven(
            host='def f(x):\n    point("outer", x)\n    return x\n',
            middle='@splice("outer")\ndef _(x):\n    x = x + 1\n    point("inner", x)\n    x = x * 2\n',
            last='@splice("inner")\ndef _(x):\n    x = x * 10\n',
        )
        assert run(text)["f"](1) == 40


class TestNames:
    """A splice shares the names of its parameters with the host; its others are its own."""

    @pytest.mark.parametrize(
        ("parameters", "body", "message"),
        [
            ("q", "x = 2\nq = q + x", "binds x, which is also a name in the host at fragments/model/host.py:7"),
            ("q", "x = 1\ng = lambda x: x\nq = g(x)", "binds x, which is also"),
            ("q", "from math import pi as x\nq = q * x", "binds x, which is also"),
            ("q", "match q:\n    case int(real=x):\n        q = x", "binds x, which is also"),
            ("q, size", "q = [x * size for x in q]", None),
            ("q, size", "q = [self * size for self in q]", "binds self, and reads size, which the point"),
        ],
    )
    def test_a_name_of_its_own_that_the_host_has_is_refused(self, parameters, body, message):
        lines = "".join(f"    {line}\n" for line in body.split("\n"))
        rope = f'@splice("Attention.heads")\ndef _({parameters}):\n{lines}'
        if message is None:
            assert "[x * (self.sizes[0] + 1) for x in q]" in woven(host=HOST, rope=rope)
            return
        error = refused(host=HOST, rope=rope)
        assert error.startswith("fragments/model/rope.py:2: model/rope ") and message in error
        assert "another name" in error.splitlines()[1]

    def test_a_block_shows_the_names_that_it_binds(self):
        host = 'def f(x):\n    with point("f.y", x):\n        z = x\n        y = z + 1\n    return y\n'
        splice = '@splice("f.y")\ndef _(x, y{}):\n    z = 2 * x\n    y = z\n'
        assert "Take it as a parameter, as the point 'f.y' shows it" in refused(host=host, s=splice.format(""))
        assert run(woven(host=host, s=splice.format(", z")))["f"](2) == 4

    def test_a_name_in_a_comprehension_is_known_only_there(self):
        assert spliced("q = [x for x in q]") == "        q = [x for x in q]\n"
        host = 'def f(x):\n    x = [n for n in x]\n    point("a", x)\n    return x\n'
        text = woven(host=host, s='@splice("a")\ndef _(x):\n    n = 2\n    x = x * n\n')
        assert run(text)["f"]([1]) == [1, 1]

    def test_a_name_that_the_host_has_only_as_an_attribute_stays(self):
        assert spliced("sizes = 2\nq = q + sizes") == "        sizes = 2\n        q = q + sizes\n"

    @pytest.mark.parametrize(
        ("one", "two", "apart"),
        [
            ("h = x + 1\n    x = h", "h = x * 2\n    x = h", True),
            ("for h in [x]:\n        x = h + 1", "x = sum([h for h in [x, x]])", True),
            ("h = x + 1\n    x = h", "h = x * 2\n    g = lambda: h\n    x = g()", False),
            ("h = x + 1\n    x = (h for _ in [1])", "h, (x,) = 3, x\n    x = h + x", False),
            ("h = x + 1\n    x = h", "if x > 5:\n        h = x\n    x = x * 2 + h", False),
            ("h = x + 1\n    x = h", "h = x\n    emit(h)\n    x = x * 2", False),
        ],
    )
    def test_two_splices_may_have_a_name_where_neither_sees_the_value_of_the_other(self, one, two, apart):
        """Fragments of two authors meet; each binds its name before it reads it, and reads it at once."""
        texts = {
            "host": 'def f(x):\n    point("a", x)\n    point("b", x)\n    return x\n',
            "one": f'@splice("a")\ndef _(x):\n    {one}\n',
            "two": f'@splice("b")\ndef _(x):\n    {two}\n',
        }
        if apart:
            assert run(woven(**texts))["f"](1) == 4
        else:
            error = refused(**texts)
            assert "model/two" in error and "h, and so does model/one (fragments/model/one.py:2)" in error

    def test_a_splice_around_another_shares_no_name_with_it(self):
        host = 'def f(x):\n    with point("a", x):\n        x = x + 1\n    return x\n'
        one = '@splice("a")\ndef _(x):\n    h = x\n    proceed()\n    x = x + h\n'
        two = one.replace('"a"', '"a", after="one"')
        assert "binds h, and so does model/one" in refused(host=host, one=one, two=two)

    def test_an_expression_that_the_point_shows(self):
        head = '@splice("Attention.heads")\ndef _(q, size):'
        assert spliced("q = q * size", head) == "        q = q * (self.sizes[0] + 1)\n"

    def test_an_expression_is_not_captured(self):
        host = 'def f(n):\n    point("a", n, twice=n + n)\n    return n\n'
        body = '@splice("a")\ndef _(n, twice):\n'
        assert run(woven(host=host, s=body + "    m = [twice for k in range(2)]\n    n = sum(m)\n"))["f"](3) == 12
        message = "model/s binds n, and reads twice, which the point 'a' shows as n + n"
        assert message in refused(host=host, s=body + "    n = 1\n    n = twice\n")
        assert message in refused(host=host, s=body + "    for n in range(2):\n        n = twice\n")
        assert message in refused(host=host, s=body + "    g = lambda n: n * twice\n")


class TestRefused:
    """What would mean something else in its host is an error, with the way out."""

    @pytest.mark.parametrize(
        ("parameters", "body", "message"),
        [
            ("q", "scale = 1\n    x = 1\n    emit(x)", "emits x, which is also a name in the host"),
            ("q", "q = x + 1", "uses x, which is not a parameter of the splice, but a variable of the host"),
            ("size", "size = 2", "rebinds size, which the point 'Attention.heads' shows as self.sizes[0] + 1"),
            ("q", "return q", "a splice cannot return here: its host would return"),
            ("q", "yield q", "yields, which would make a generator of the host"),
            ("q", "del q", "deletes q, which the host"),
            ("q", 'y = 7\n    q = q * locals()["y"]', "calls locals, which looks names up"),
            ("q", 'exec("q = 1")', "calls exec, which looks names up"),
            ("q", "global z\n    z = q", "a splice cannot have `global z`"),
            ("q=1", "q = 2", "has parameters that its host cannot fill"),
            ("*q", "q = 2", "has parameters that its host cannot fill"),
            (
                "q",
                "proceed()",
                "calls proceed(), and the point 'Attention.heads' (fragments/model/host.py:7) holds no stat",
            ),
        ],
    )
    def test_splice(self, parameters, body, message):
        text = refused(host=HOST, rope=f'@splice("Attention.heads")\ndef _({parameters}):\n    {body}\n')
        assert text.startswith("fragments/model/rope.py:")
        assert message in text
        assert "\n  " in text  # a remedy

    @pytest.mark.parametrize(
        ("place", "message"),
        [
            ("point()", "a point needs a name"),
            ("point(x)", "a point needs a name"),
            ('point("a", x.y)', "a point shows x.y, which is not a local name"),
            ('point("a", *x)', "a point needs a name"),
            ('with point("a"), open(x):\n        y = 1', "a point shares its `with`"),
            ('with point("a") as p:\n        y = 1', "a point shares its `with`"),
            ('point("a", x)\n    point("a", x)', "the point 'a' is also at fragments/model/host.py:2"),
        ],
    )
    def test_point(self, place, message):
        text = refused(host=f"def f(x):\n    {place}\n    return x\n")
        assert text.startswith("fragments/model/host.py:")
        assert message in text

    def test_a_point_in_a_splice_for_itself(self):
        host = 'def f(x):\n    point("a", x)\n    return x\n'
        text = refused(host=host, s='@splice("a")\ndef _(x):\n    x = 1\n    point("a", x)\n')
        assert text == "fragments/model/s.py:4: the point 'a' is in a splice for itself\n  Remove it there."

    def test_a_host_that_yields_may_get_a_yield(self):
        text = woven(
            host='def f(x) -> "Iterator[int]":\n    point("a", x)\n', s='@splice("a")\ndef _(x):\n    yield x\n'
        )
        assert list(run(text)["f"](3)) == [3]
