"""The order of splices at one point, by what goes in and what comes out."""

from __future__ import annotations

import re

import pytest
from miniature import PACKAGE, files, package, refused, refused_package, run, with_imports, woven

from generator.errors import LoomError
from generator.recipe.library import Library
from generator.weaver import weave


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
            '  Write under [order] of the architecture: "a" = ["model/add", "model/double"]; or the other way round.'
        )

    def test_the_remedy_of_built_in_ones(self):
        sources = {"model/host": self.HOST, "model/add": self.splice("+ 1"), "model/double": self.splice("* 2")}
        header = 'title = "Toy"\n[order]\n'
        exports = {"package": PACKAGE.replace('"model"', '"f"')}
        order = re.search(r"\"a\" = \[.*?]", refused_package(sources, **exports))[0]
        for line, result in ((order, 12), (re.sub(r"\[(.*), (.*)]", r"[\2, \1]", order), 11)):
            text = package(sources, architecture=header + line, **exports).files["model.py"]
            assert run(text)["f"](5) == result

    def test_those_of_a_project_go_last(self):
        """Without any order, wherever they are selected; two of them need one, which the remedy has where they are."""
        sources = {"model/mine": self.splice("* 2"), "model/host": self.HOST, "model/add": self.splice("+ 1")}
        sources["model/set"] = self.splice("- 3", ', after="add"')
        texts = files(sources, package=PACKAGE.replace('"model"', '"f"'))
        builtin = texts.keys() - {"fragments/model/mine.py"}
        text = weave("toy", "any", Library(texts, builtin)).files["model.py"]
        assert run(text)["f"](5) == (5 + 1 - 3) * 2
        texts["fragments/model/mine.py"] = with_imports(self.splice("* 2", ', before="add"'))
        assert run(weave("toy", "any", Library(texts, builtin)).files["model.py"])["f"](5) == 5 * 2 + 1 - 3
        with pytest.raises(LoomError, match=r'Write after="mine" or before=... at fragments/model/add.py:2'):
            texts["fragments/model/mine.py"] = with_imports(self.splice("* 2"))
            weave("toy", "any", Library(texts, builtin - {"fragments/model/add.py"}))

    def test_a_circle(self):
        one, two = self.splice("+ 1", ', after="two"'), self.splice("* 2", ', after="one"')
        text = refused(host=self.HOST, one=one, two=two)
        assert "the order of splices at fragments/model/host.py:2 goes in a circle: model/" in text
        assert "Drop one of the before/after of model/" in text
