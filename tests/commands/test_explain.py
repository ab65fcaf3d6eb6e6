"""gen explain: names the fragment of a generated line, and the lines of a fragment."""

from __future__ import annotations

import json

import pytest
from conftest import weave_files

from generator.code.traced import Origin
from generator.commands.explain import split_line

MODEL = "generated/llama_cpu/model.py"


@pytest.fixture
def built(workshop):
    """The workshop with llama for two targets built."""
    workshop.build("llama_cpu", "llama_gpu")
    return workshop


class TestFile:
    def test_line(self, built, monkeypatch):
        said = (
            "fragments/model/rope.py:8\n  return x * angles\n  feature: Rotary positions\n  source:  Su et al., 2021\n"
        )
        for word in (f"{MODEL}:9", "llama_cpu/model.py:9", f"{MODEL}:9:4"):
            assert built.run("explain", word).stdout == said
        found = json.loads(built.run("explain", f"{MODEL}:9", "--json").stdout)
        stretch = {"first": 9, "last": 9, "text": "return x * angles", "title": "Rotary positions"}
        source = {"source": "fragments/model/rope.py", "source_first": 8, "source_last": 8}
        stretches = [{**stretch, **source, "citation": "Su et al., 2021"}]
        assert found == {"package": "llama_cpu", "path": "model.py", "edited": False, "stretches": stretches}
        (built.root / "gen.toml").write_text("")
        monkeypatch.chdir(built.generated / "llama_cpu")
        assert built.run("explain", "model.py:9").stdout == said

    def test_line_of_two_sources(self):
        segments = [(0, Origin("host.py", 3)), (10, Origin("packing.py", 9)), (20, Origin("host.py", 3))]
        stretches = split_line(5, "attend(x, segments=s, y)", segments, {"packing.py": '"""Packing."""'})
        assert [(s.text, s.source, s.title) for s in stretches] == [
            ("attend(x,", "host.py", ""),
            ("segments=s", "packing.py", "Packing"),
            (", y)", "host.py", ""),
        ]

    def test_all_lines(self, built):
        assert built.run("explain", MODEL).stdout == (
            "  1  templates/architectures/llama.toml:1  Llama\n"
            "2-5  fragments/model/attention.py:5-8  Attention\n"
            "6-9  fragments/model/rope.py:5-8  Rotary positions\n"
            "\n"
            "fragments/model/attention.py: Vaswani et al., 2017\n"
            "fragments/model/rope.py: Su et al., 2021\n"
        )

    def test_edited_file(self, built):
        path = built.root / MODEL
        path.write_text(path.read_text() + "mine = 1\n")
        result = built.run("explain", f"{MODEL}:{len(path.read_text().splitlines())}")
        assert "model.py was edited since it was built" in result.stderr
        assert result.stdout == "this line was written since the file was built\n"


class TestFragment:
    @pytest.mark.parametrize("word", ["rope", "model/rope", "fragments/model/rope.py"])
    def test_shown_woven_once_for_all_packages(self, built, word):
        stdout = built.run("explain", "--fragment", word).stdout
        assert stdout.startswith("fragments/model/rope.py: Rotary positions\nsource: Su et al., 2021\n")
        assert "generated/llama_cpu/model.py:6 and 1 more: generated/llama_gpu/model.py:6" in stdout
        assert stdout.count("  |     return x * angles") == 1
        assert "        return query @ key" in stdout, "lines around it are shown unmarked"

    def test_part_of_a_line_counts(self, workshop, monkeypatch):
        def weave(*arguments):
            package = weave_files(*arguments)
            package.origins["train.py"][3].append((9, Origin("fragments/model/rope.py", 3)))
            return package

        monkeypatch.setattr("generator.commands.packages.weave_package", weave)
        workshop.build("llama_cpu")
        assert "\n  | def loop(steps):\n" in workshop.run("explain", "--fragment", "rope").stdout
        found = json.loads(workshop.run("explain", "--fragment", "loop", "--json").stdout)
        assert (found["places"][0]["path"], found["places"][0]["lines"][-1]) == (
            "train.py",
            [True, "        yield step"],
        )

    def test_not_in_any_package(self, built):
        built.source("fragments/model/unused.py", "x = 1\n")
        assert "no built package has a line of it" in built.run("explain", "--fragment", "unused").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.py:3"], "nothing.py: there is no such file"),
        (["llama_cpu"], "llama_cpu: is a folder"),
        ([f"{MODEL}:999"], f"{MODEL}: there is no line 999"),
        ([f"{MODEL}:0"], "lines count from 1"),
        (["generated/llama_cpu/docs/README.md:1"], "has no line map"),
        (["generated/llama_cpu/gen.lock"], "has no line map"),
        (["mine.py:1"], "mine.py: is not in a package that gen built"),
        (["generated/llama_gpu/model.py:1"], "is not UTF-8 text"),
        (["--fragment", "ropes"], "Did you mean rope"),
        (["--fragment", "loop"], "Say which: data/loop or train/loop."),
        ([], "explain needs a file or --fragment"),
        ([MODEL, "--fragment", "rope"], "explain takes a file or --fragment, not both"),
    ],
)
def test_mistakes(built, words, message):
    (built.root / "mine.py").write_text("")
    (built.generated / "llama_gpu/model.py").write_bytes(b"\xff\n")
    built.source("fragments/data/loop.py", "x = 1\n")
    assert message in built.run("explain", *words, code=2).stderr


def test_nothing_built(workshop):
    assert "no package has been built" in workshop.run("explain", "--fragment", "rope", code=2).stderr
