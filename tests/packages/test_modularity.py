"""The page of what is measured has the numbers of today, and what measures counts right."""

from __future__ import annotations

from textwrap import dedent

import pytest
from miniature import files

from benchmarks import families, modularity
from generator.commands.tables import format_markdown
from generator.disk.project import Project, builtin_root
from generator.recipe.library import Library
from generator.recipe.recipe import select

PROJECT = Project((builtin_root(),), builtin_root(), builtin_root() / "generated")
PAGE = modularity.PAGE.read_text()
BODY = "a = 1\nb = 2\nc = 3\nd = 4\n"
IMPORTS = "import a\nimport b\nimport c\nfrom d import (\n    e,\n    f,\n)\n"
MODEL = """
    from generator.language import point
    from generator.language.roles import activate


    def model(x):
        point("model.input", x)
        return activate(x)
    """
SCALE = """
    from generator.language import splice


    @splice("model.input")
    def _(x):
        x = x * 2
        x = x + 1
    """
MORE = """
    from generator.language import requires, splice

    requires("scale")


    @splice("model.input", after="scale")
    def _(x):
        x = x - 3
    """
RELU = "class Config:\n    slope: int  # how steep\n\n\ndef activate(x):\n    return max(x, 0)\n"
LEAKY = "class Config:\n    leak: int  # how much\n\n\ndef activate(x):\n    return x if x > 0 else x / 100\n"
RIVAL = 'from generator.language import excludes\n\nexcludes("scale")\n'
BASE = {"model/model": MODEL, "model/relu": RELU}


def test_lines_and_counts_are_those_of_today():
    for path, text in modularity.shown(PROJECT).items():
        assert path.read_text() == text, f"{path.name}: run `make modularity`"


def test_tables_are_those_of_today():
    for table in modularity.counted(PROJECT):
        assert format_markdown(table) in PAGE, f"{table.title}: run `make modularity`"


def test_the_table_of_families_is_that_of_today():
    text = families.PAGE.read_text()
    assert families.page(PROJECT, text) == text, "run `make modularity`"


@pytest.mark.slow
def test_the_table_of_features_is_that_of_today():
    assert format_markdown(modularity.touched(PROJECT, modularity.FEATURES)) in PAGE, "run `make features`"


@pytest.mark.parametrize(
    ("first", "second", "rows", "lines"),
    [
        (BODY, "x = 0\na=1  # one\n\n# two\nb = 2\nc = 3\nd = 4\n", [(4, "p.py:1", "q.py:2")], 4),
        (BODY, "a = 1\nb = 2\nc = 3\n", [], 0),
        (BODY + "e = 5\nf = 6\n", BODY + "e = 5\nf = 6\n", [(6, "p.py:1", "q.py:1")], 6),
        (IMPORTS, IMPORTS, [], 0),
        (BODY * 2, "", [], 0),
    ],
    ids=["whatever their layout", "three lines", "longer", "imports", "within one fragment"],
)
def test_restated_lines(first, second, rows, lines):
    table = modularity.restated({"p.py": first, "q.py": second})
    assert (table.rows, table.note.split()[0]) == (rows, str(lines))


@pytest.mark.parametrize(
    ("feature", "selected", "spare", "expected"),
    [
        ("model/scale", {"model/scale": SCALE}, {}, (0, 1, 1, 1, 0, 2)),
        ("model/scale", {"model/scale": SCALE, "model/more": MORE}, {}, (0, 1, 1, 1, 0, 3)),
        ("model/relu", {}, {}, (None, 1, 1, 0, 0, 0)),
        ("model/relu", {}, {"model/leaky": LEAKY}, (0, 1, 1, 1, 0, 1)),
        ("model/scale", {"model/rival": RIVAL}, {"model/scale": SCALE}, (0, 1, 0, 0, 1, 2)),
        ("model/scale", {}, {"model/scale": SCALE.replace("input", "output")}, (None, 1, 0, 0, 0, 0)),
    ],
    ids=["left out", "what builds on it", "nothing stands in", "another stands in", "added", "not to be added"],
)
def test_what_a_feature_touches(feature, selected, spare, expected):
    texts = files({**BASE, **selected}, architecture='title = "Toy"\n[presets.tiny]\nslope = 3\n')
    library = Library(texts | {f"fragments/{name}.py": dedent(text).lstrip("\n") for name, text in spare.items()})
    recipes = [select("toy", "any", library)]
    assert modularity.touched_by(feature, recipes, library)[2:] == expected
