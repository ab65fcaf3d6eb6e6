"""gen loc: counts that can be checked by hand."""

from __future__ import annotations

import json
from textwrap import dedent

import pytest
from miniature import PACKAGE, files

from generator.commands.tables import Table, markdown, plain
from generator.disk.project import Combination, Project, builtin_root
from generator.measure.clones import clones
from generator.measure.count import Lines, count
from generator.measure.feature import Reach, reach

ROOT = builtin_root()


class TestLines:
    @pytest.mark.parametrize(
        ("path", "text", "lines"),
        [
            ("a.py", '"""Doc\n\nstring."""\n\nx = 1  # why\n# comment\n', Lines(6, 1)),
            ("a.py", 'def f():\n    """Doc."""\n    return """a\n\n    b"""\n', Lines(5, 3)),
            ("a.py", "class A:\n    'Doc.'\n    x: int = (\n        1\n    )\n", Lines(5, 4)),
            ("a.py", "x = '# no comment'\ny = f'{x}'\n", Lines(2, 2)),
            ("a.py", "", Lines(0, 0)),
            ("a.toml", "# comment\n\n[table]\nkey = 1\n", Lines(4, 2)),
            ("a.md.jinja", "# Title\n{# a\ncomment #}\n\ntext {# more #}\n", Lines(5, 2)),
            ("a.yaml.jinja", "# comment\nkey: {{ value }}\n", Lines(2, 1)),
            ("a.md", "# Title\n\ntext\n", Lines(3, 2)),
        ],
    )
    def test_physical_and_code(self, path, text, lines):
        assert count(path, text) == lines

    def test_broken_source_names_its_line(self, workshop):
        workshop.source("fragments/model/rope.py", "x = 1\ny = (\n")
        assert "error: fragments/model/rope.py:2: is not Python" in workshop.run("loc", code=2).stderr


class TestClones:
    BODY = "a = 1\nb = 2\nc = 3\nd = 4\n"

    def test_four_lines_are_restated_whatever_their_layout(self):
        other = "x = 0\na=1  # one\n\n# two\nb = 2\nc = 3\nd = 4\n"
        lines, found = clones({"p.py": self.BODY, "q.py": other})
        assert (lines, found) == (4, [(4, "p.py:1", "q.py:2")])

    def test_three_lines_are_not(self):
        assert clones({"p.py": self.BODY, "q.py": "a = 1\nb = 2\nc = 3\n"}) == (0, [])

    def test_longer_runs_are_one(self):
        body = self.BODY + "e = 5\nf = 6\n"
        assert clones({"p.py": body, "q.py": body}) == (6, [(6, "p.py:1", "q.py:1")])

    def test_imports_are_not_counted(self):
        imports = "import a\nimport b\nimport c\nfrom d import (\n    e,\n    f,\n)\n"
        assert clones({"p.py": imports, "q.py": imports}) == (0, [])

    def test_within_one_fragment_is_no_restatement_between_fragments(self):
        assert clones({"p.py": self.BODY * 2}) == (0, [])


class TestReport:
    @pytest.fixture
    def report(self, workshop):
        workshop.build("llama_cpu", "llama_gpu", "plain_cpu")
        workshop.list_packages("plain_cpu", "llama_cpu", "llama_gpu")
        return json.loads(workshop.run("loc", "--json").stdout)

    def test_source(self, report):
        # code: attention 2, rope 2, kernels 2 + 2, loop 3; each TOML file 2
        assert report["source"]["fragments"] == {"files": 5, "physical": 32, "code": 11}
        assert report["source"]["architectures"] == {"files": 2, "physical": 4, "code": 4}
        assert report["source"]["targets"] == {"files": 2, "physical": 4, "code": 4}
        assert report["source"]["total"] == {"files": 9, "physical": 40, "code": 19}

    def test_generated(self, report):
        # each package: README 1, kernel 2, loop 3, attention 2, and rope 2 for llama
        assert [package["code"] for package in report["packages"]] == [8, 10, 10]
        assert report["generated"]["code"] == 28
        # once: three READMEs 3, two models 2 + 4, two kernels 2 + 2, one loop 3
        assert report["generated_distinct"]["code"] == 16
        assert report["ratio"]["code"] == round(28 / 19, 2)
        assert report["ratio"]["distinct_code"] == round(16 / 19, 2)

    def test_fragments(self, report):
        rows = {row["fragment"]: (row["code"], row["makes"], row["packages"]) for row in report["fragments"]}
        assert rows == {
            "kernels/cpu": (2, 4, 2),
            "kernels/gpu": (2, 2, 1),
            "model/attention": (2, 6, 3),
            "model/rope": (2, 4, 2),
            "train/loop": (3, 9, 3),
        }

    def test_architectures_in_the_order_of_the_list(self, report):
        assert [(row["architecture"], row["code"], row["new_fragments"]) for row in report["architectures"]] == [
            ("plain", 4, ["model/attention"]),
            ("llama", 4, ["model/rope"]),
        ]

    def test_what_a_target_selects_is_not_new(self, workshop, report):
        other = '[targets.gpu]\nwithout = ["kernels/gpu"]\nfragments = ["kernels/cpu"]\n'
        workshop.source("templates/architectures/plain.toml", f'title = "Plain"\nfragments = ["model/rope"]\n{other}')
        row = json.loads(workshop.run("loc", "--json").stdout)["architectures"][0]
        assert (row["architecture"], row["new_fragments"]) == ("plain", ["model/rope"])

    def test_restated(self, workshop, report):
        assert report["restated"] == {"lines": 0, "clones": []}
        body = "a = 1\nb = 2\nc = 3\nd = 4\n"
        workshop.source("fragments/data/one.py", body)
        workshop.source("fragments/data/two.py", body)
        restated = json.loads(workshop.run("loc", "--json").stdout)["restated"]
        assert restated["lines"] == 4
        assert restated["clones"] == [
            {"lines": 4, "first": "fragments/data/one.py:1", "second": "fragments/data/two.py:1"}
        ]

    def test_fragments_restate_two_runs_of_lines(self):
        """Two tables of which a package has one, with comments of their own; two dataclasses of two files."""
        paths = [*(ROOT / "fragments").rglob("*.py")]
        _, found = clones({path.relative_to(ROOT).as_posix(): path.read_text() for path in paths})
        pairs = [tuple(place.partition(":")[0].removeprefix("fragments/") for place in run[1:]) for run in found]
        assert pairs == [
            ("parallel/expert_rules.py", "parallel/whole_expert_rules.py"),
            ("pages/int8.py", "weights/int8_kernels.py"),
        ]

    def test_features_are_claimed_only_when_measured(self, workshop, report, monkeypatch):
        assert report["features"] == []
        monkeypatch.setattr("generator.measure.loc.reach", lambda project, name, kept: Reach(0, 1, 2, 2, 0, 31))
        assert "What a feature touches" in workshop.run("loc", "--feature=model/rope").stdout
        assert "unknown fragment 'model/roep'" in workshop.run("loc", "--feature=model/roep", code=2).stderr

    def test_for_people(self, workshop, report):
        stdout = workshop.run("loc").stdout
        assert "Generated lines for each source line" in stdout and "  model/rope" in stdout
        assert "| model/rope | 2 | 4 | 2 |" in workshop.run("loc", "--markdown").stdout
        workshop.run("loc", "--json", "--markdown", code=2)

    def test_nothing_built(self, workshop):
        assert json.loads(workshop.run("loc", "--json").stdout)["ratio"]["code"] == 0


class TestCharges:
    """An architecture is charged with its file, and with what it selects and neither a base nor every package does."""

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

    def test_them(self, workshop):
        for name in "common", "own", "ruled", "of_kind", "of_target", "more", "anybodys":
            workshop.source(f"fragments/model/{name}.py", f"def {name}():\n    return 1  # one\n")
        for path, text in {"package": self.PACKAGE, "architectures/base": self.BASE}.items():
            workshop.source(f"templates/{path}.toml", dedent(text))
        workshop.source("templates/architectures/variant.toml", dedent(self.VARIANT))
        workshop.list_packages("variant_cpu")
        rows = json.loads(workshop.run("loc", "--json").stdout)["architectures"]
        assert rows[:2] == [
            {  # 14 lines of its own, with a comment and two blank ones; four fragments of two lines
                **{"architecture": "base", "physical": 17 + 8, "code": 14 + 8, "presets": 5},
                "new_fragments": ["model/own", "model/ruled", "model/of_kind", "model/of_target"],
            },
            {  # 8 lines, with one blank one; two fragments, as one of the three is not there
                **{"architecture": "variant", "physical": 9 + 4, "code": 8 + 4, "presets": 2},
                "new_fragments": ["model/more", "model/nowhere", "model/anybodys"],
            },
        ]


class TestReach:
    """What a feature touches, in packages small enough to count by hand."""

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
    RELU = "def activate(x):\n    return max(x, 0)\n"
    OTHER = "def activate(x):\n    return x if x > 0 else x / 100\n"

    def measure(self, tmp_path, fragment: str, selected: dict[str, str], others: dict[str, str] | None = None, **toy):
        """What a fragment touches, where the architecture `toy` selects some and others are there to choose from."""
        spare = {f"fragments/{name}.py": dedent(text).lstrip("\n") for name, text in (others or {}).items()}
        for path, text in files({"model/model": self.MODEL, **selected}, **toy, **spare).items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        names = sorted(path.stem for path in (tmp_path / "templates/architectures").iterdir())
        project = Project((tmp_path,), tmp_path, tmp_path / "generated")
        return reach(project, fragment, [Combination(name, "any") for name in names])

    def test_left_out(self, tmp_path):
        found = self.measure(tmp_path, "model/scale", {"model/scale": self.SCALE, "model/relu": self.RELU})
        assert found == Reach(others=0, selecting=1, packages=1, without=1, added=0, generated=2 + 1)  # and the heading

    def test_nothing_stands_in(self, tmp_path):
        found = self.measure(tmp_path, "model/relu", {"model/relu": self.RELU})
        assert found == Reach(others=None, selecting=1, packages=1, without=0, added=0, generated=0)

    def test_another_stands_in(self, tmp_path):
        found = self.measure(tmp_path, "model/relu", {"model/relu": self.RELU}, {"model/other": self.OTHER})
        assert (found.others, found.without, found.generated) == (0, 1, 1 + 1)  # `return` differs, and the heading

    def test_a_second_one_does_not(self, tmp_path):
        selected = {"model/relu": self.RELU + "\n\ndef model_size():\n    return 1\n"}
        model = self.MODEL.replace("roles import activate", "roles import activate, model_size").replace(
            "return activate(x)", "return activate(x) * model_size()"
        )
        others = {"model/other": self.OTHER, "model/size": "def model_size():\n    return 1\n"}
        found = self.measure(tmp_path, "model/relu", {"model/model": model, **selected}, others)
        assert (found.others, found.without) == (None, 0)

    @pytest.mark.parametrize(
        "field",
        ["leak: int  # how much", "@property\n    def slope(self) -> int:\n        return 2"],
        ids=["another size", "a property in place of a size"],
    )
    def test_what_stands_in_has_fields_of_its_own(self, tmp_path, field):
        relu = "class Config:\n    slope: int  # how steep\n\n\n" + self.RELU
        leaky = f"class Config:\n    {field}\n\n\n" + self.OTHER
        toy = dict(architecture='title = "Toy"\n[presets.tiny]\nslope = 3\n')
        toy["package"] = PACKAGE.replace('"model"', '"PRESETS", "model"', 1)
        found = self.measure(tmp_path, "model/relu", {"model/relu": relu}, {"model/leaky": leaky}, **toy)
        assert (found.others, found.without) == (0, 1)

    def test_what_builds_on_it_goes_with_it(self, tmp_path):
        more = """
            from generator.language import requires, splice

            requires("scale")


            @splice("model.input", after="scale")
            def _(x):
                x = x - 3
            """
        inner = self.SCALE.replace("x = x * 2", 'point("scale.inside", x)').replace("splice", "point, splice", 1)
        deeper = self.SCALE.replace("model.input", "scale.inside").replace("x * 2", "x * 4").replace("x + 1", "x + 5")
        selected = {"model/scale": inner, "model/more": more, "model/deeper": deeper, "model/relu": self.RELU}
        found = self.measure(tmp_path, "model/scale", selected)
        assert (found.others, found.without, found.generated) == (0, 1, 4 + 1)

    def test_added_where_none_selects_it(self, tmp_path):
        toy = {
            "templates/architectures/rival.toml": 'base = "toy"\ntitle = "Rival"\nfragments = ["model/rival"]\n',
            "fragments/model/rival.py": 'from generator.language import excludes\n\nexcludes("scale")\n',
        }
        found = self.measure(tmp_path, "model/scale", {"model/relu": self.RELU}, {"model/scale": self.SCALE}, **toy)
        assert found == Reach(others=0, selecting=1, packages=0, without=0, added=1, generated=2 + 1)

    def test_added_where_it_does_not_weave(self, tmp_path):
        scale = self.SCALE.replace("model.input", "model.output")
        found = self.measure(tmp_path, "model/scale", {"model/relu": self.RELU}, {"model/scale": scale})
        assert found == Reach(others=None, selecting=1, packages=0, without=0, added=0, generated=0)

    @pytest.mark.slow
    def test_experts_of_the_library(self):
        found = reach(Project((ROOT,), ROOT, ROOT / "generated"), "model/experts", [Combination("mixtral", "cpu")])
        assert (found.others, found.without) == (0, 1) and found.generated > 60


def test_tables():
    table = Table("Title", ("name", "lines"), [("a|b", 1200), ("c", None), ("d", 3)], "Note.")
    assert plain(table) == "Title\n  name  lines\n  a|b   1,200\n  c         -\n  d         3\n  Note."
    assert markdown(table) == (
        "**Title**\n\n| name | lines |\n| --- | ---: |\n| a\\|b | 1,200 |\n| c | - |\n| d | 3 |\n\nNote."
    )
