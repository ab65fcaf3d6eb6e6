"""The order of splices at one point, by what goes in and what comes out."""

from __future__ import annotations

from miniature import refused, run, woven


class TestOrder:
    """Splices at one point stand in the declared order, else in that of their selection."""

    HOST = 'def f(x):\n    point("a", x)\n    return x\n'

    def splice(self, operation: str, options: str = "") -> str:
        return f'@splice("a"{options})\ndef _(x):\n    x = x {operation}\n'

    def test_declared(self):
        add, double = self.splice("+ 1", ', after="double"'), self.splice("* 2")
        for order in ({"add": add, "double": double}, {"double": double, "add": add}):
            assert run(woven(host=self.HOST, **order))["f"](5) == 11

    def test_by_selection_where_nothing_is_rebound(self):
        log = {name: f'@splice("a")\ndef _(x):\n    x.append("{name}")\n' for name in ("one", "two", "three")}
        assert run(woven(host=self.HOST, **log))["f"]([]) == ["one", "two", "three"]

    def test_none_declared(self):
        text = refused(host=self.HOST, add=self.splice("+ 1"), double=self.splice("* 2"))
        assert text == (
            "fragments/model/double.py:2: model/add (fragments/model/add.py:2) and model/double "
            "(fragments/model/double.py:2) both rebind x at fragments/model/host.py:2, in no declared order\n"
            '  Write after="add" or before=... at fragments/model/double.py:2.'
        )

    def test_a_circle(self):
        one, two = self.splice("+ 1", ', after="two"'), self.splice("* 2", ', after="one"')
        text = refused(host=self.HOST, one=one, two=two)
        assert "the order of splices at fragments/model/host.py:2 goes in a circle: model/" in text
        assert "Drop one of the before/after of model/" in text
