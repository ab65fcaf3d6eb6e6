"""gen loc: counts that can be checked by hand."""

from __future__ import annotations

import json
from textwrap import dedent

import pytest

from generator.commands.loc import LineCount, count_files
from generator.commands.tables import Table, format_markdown, format_text


@pytest.mark.parametrize(
    ("path", "text", "physical", "code"),
    [
        ("a.py", '"""Doc\n\nstring."""\n\nx = 1  # why\n# comment\n', 6, 1),
        ("a.py", 'def f():\n    """Doc."""\n    return """a\n\n    b"""\n', 5, 3),
        ("a.py", "class A:\n    'Doc.'\n    x: int = (\n        1\n    )\n", 5, 4),
        ("a.py", "x = '# no comment'\ny = f'{x}'\n", 2, 2),
        ("a.py", "", 0, 0),
        ("a.toml", "# comment\n\n[table]\nkey = 1\n", 4, 2),
        ("a.md.jinja", "# Title\n{# a\ncomment #}\n\ntext {# more #}\n", 5, 2),
        ("a.yaml.jinja", "# comment\nkey: {{ value }}\n", 2, 1),
        ("a.md", "# Title\n\ntext\n", 3, 2),
    ],
)
def test_lines(path, text, physical, code):
    assert count_files({path: text}) == LineCount(1, physical, code)


class TestReport:
    @pytest.fixture
    def report(self, workshop):
        workshop.build("llama_cpu", "llama_gpu", "plain_cpu")
        workshop.list_packages("plain_cpu", "llama_cpu", "llama_gpu")
        tables = json.loads(workshop.run("loc", "--json").stdout)
        return {title: [tuple(row.values()) for row in rows] for title, rows in tables.items()}

    def test_all(self, report):
        # code: attention 2, rope 2, kernels 2 + 2, loop 3; each TOML file 2
        assert report["Source"][:-1] == [
            ("fragments", 5, 32, 11),
            ("templates", 0, 0, 0),
            ("architectures", 2, 4, 4),
            ("targets", 2, 4, 4),
            ("total", 9, 40, 19),
        ]
        # each package: README 1, kernel 2, loop 3, attention 2, and rope 2 for llama;
        # once: three READMEs 3, two models 2 + 4, two kernels 2 + 2, one loop 3
        code = {row[0]: row[-1] for row in report["Generated"]}
        assert list(code.values()) == [8, 10, 10, 28, 16]
        assert [row[-1] for row in report["Generated lines for each source line"]] == [1.47, 0.84]
        assert report["What a fragment makes"] == [
            ("kernels/cpu", 2, 4, 2),
            ("kernels/gpu", 2, 2, 1),
            ("model/attention", 2, 6, 3),
            ("model/rope", 2, 4, 2),
            ("train/loop", 3, 9, 3),
        ]
        # in the order of the list
        assert report["What an architecture adds"] == [
            ("plain", 10, 4, 4, "model/attention"),
            ("llama", 10, 4, 4, "model/rope"),
        ]

    def test_for_people(self, workshop, report):
        assert "\n  model/rope          2      4         2\n" in workshop.run("loc").stdout
        assert "| model/rope | 2 | 4 | 2 |" in workshop.run("loc", "--markdown").stdout
        workshop.run("loc", "--json", "--markdown", code=2)

    def test_nothing_built(self, workshop):
        (rows,) = (rows for title, rows in json.loads(workshop.run("loc", "--json").stdout).items() if "each" in title)
        assert rows[0] == {"of": "all packages", "lines": 0, "code": 0}

    def test_broken_source_names_its_line(self, workshop):
        workshop.source("fragments/model/rope.py", "x = 1\ny = (\n")
        assert "error: fragments/model/rope.py:3: is not Python" in workshop.run("loc", code=2).stderr


PACKAGE = 'fragments = ["model/common"]\n[[structure]]\nsetting = "a"\nfragments = ["model/anybodys"]\n'
BASE = """
    title = "Base"
    fragments = ["model/own", "model/common"]
    [[structure]]  # a checkpoint with a window selects more
    setting = "window"
    fragments = ["model/ruled"]
    [kinds.local]
    fragments = ["model/of_kind"]
    [targets.cpu]
    fragments = ["model/of_target", "kernels/gpu"]

    # sizes
    [presets.tiny]
    width = 8
    layers = 2
    [presets."7b"]
    width = 4096
    """
VARIANT = """
    base = "base"
    title = "Variant"
    fragments = ["model/own", "model/more", "model/nowhere"]
    [presets.tiny]
    layers = 3
    [[structure]]
    setting = "window"
    fragments = ["model/ruled", "model/anybodys"]
    """


def test_what_an_architecture_adds(workshop):
    """Counts its file, and the fragments that it selects and that neither a base nor every package does."""
    for name in "common", "own", "ruled", "of_kind", "of_target", "more", "anybodys":
        workshop.source(f"fragments/model/{name}.py", f"def {name}():\n    return 1  # one\n")
    for path, text in {"package": PACKAGE, "architectures/base": BASE, "architectures/variant": VARIANT}.items():
        workshop.source(f"templates/{path}.toml", dedent(text))
    workshop.list_packages("variant_cpu")
    rows = json.loads(workshop.run("loc", "--json").stdout)["What an architecture adds"]
    assert [tuple(row.values()) for row in rows[:2]] == [
        # 14 lines of its own, with a comment and two blank ones; four fragments of two lines
        ("base", 17 + 8, 14 + 8, 9 + 8, "model/own, model/ruled, model/of_kind, model/of_target"),
        # 8 lines, with one blank one; two fragments, as one of the three is not there
        ("variant", 9 + 4, 8 + 4, 6 + 4, "model/more, model/nowhere, model/anybodys"),
    ]


def test_tables():
    table = Table("Title", ("name", "lines"), [("a|b", 1200), ("c", None), ("d", 3)], "Note.")
    assert format_text(table) == "Title\n  name  lines\n  a|b   1,200\n  c         -\n  d         3\n  Note."
    assert format_markdown(table) == (
        "**Title**\n\n| name | lines |\n| --- | ---: |\n| a\\|b | 1,200 |\n| c | - |\n| d | 3 |\n\nNote."
    )
