"""gen coverage: real runs under coverage.py, compared with its own reports of the packages."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys

import pytest
from conftest import weave_files

from generator.code.traced import Origin

ROTATE = "from llama_cpu import kernels, model\nmodel.rotate(2, 3)\n"
ATTEND = """
import contextlib
from llama_gpu import model
with contextlib.suppress(TypeError):
    model.attend(2, 3)
"""
ROPE, ATTENTION = "fragments/model/rope.py", "fragments/model/attention.py"


@pytest.fixture
def built(workshop):
    workshop.build("llama_cpu", "llama_gpu")
    return workshop


def measure(built, program: str, name: str, folder=None) -> str:
    """Runs a program under coverage.py beside the packages."""
    folder = folder or built.generated
    (folder / "run.py").write_text(program)
    command = [sys.executable, "-m", "coverage", "run", f"--data-file={built.root / name}", "--source=.", "run.py"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return name


def lines_of(built, *words: str) -> dict[str, tuple[list[int], list[int]]]:
    """Returns the executed and the missing lines of each fragment."""
    files = json.loads(built.run("coverage", *words, "--json").stdout)["files"]
    return {path: (file["executed_lines"], file["missing_lines"]) for path, file in files.items()}


def of_packages(built, name: str) -> dict[str, dict]:
    """Returns coverage.py's own report of each file."""
    command = [sys.executable, "-m", "coverage", "json", "-q", f"--data-file={built.root / name}", "-o", "-"]
    done = subprocess.run(command, cwd=built.generated, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["files"]


class TestLines:
    def test_as_coverage_itself_counts(self, built):
        """A fragment is a stretch of one file, so that its lines are those of the report, some lines further up."""
        name = measure(built, ROTATE + "import llama_cpu.train", "data")
        found, files = lines_of(built, name), of_packages(built, name)
        for source in ("model/attention", "model/rope", "kernels/cpu", "train/loop"):
            text = (built.builtin / f"fragments/{source}.py").read_text()
            file = f"llama_cpu/{source.split('/')[0]}.py"
            start = ast.parse(text).body[0].end_lineno
            body = "\n".join(text.splitlines()[start:])
            woven = (built.generated / file).read_text()
            before = woven[: woven.index(body)].count("\n")
            last = before + len(body.splitlines())
            for lines, kind in zip(found[f"fragments/{source}.py"], ("executed", "missing"), strict=True):
                assert lines == [n - before + start for n in files[file][f"{kind}_lines"] if before < n <= last]
        assert sum(len(lines) for both in found.values() for lines in both) == 9, "each line"
        assert found[ROPE] == ([7, 8], []) and found[ATTENTION] == ([7], [8])

    def test_any_package_counts(self, built):
        both = lines_of(built, measure(built, ROTATE, "one"), measure(built, ATTEND, "two"))
        assert both[ROPE] == both[ATTENTION] == ([7, 8], [])

    def test_parts_of_other_lines(self, workshop, monkeypatch):
        """Neither an import that was woven for a line, nor a part of another line, counts as a run of the line."""

        def weave(*arguments):
            package = weave_files(*arguments)
            package.files["model.py"] += "from .train import loop\nx = [1, 2]\n"
            attention, loop = Origin(ATTENTION, 8), Origin("fragments/train/loop.py", 1)
            package.origins["model.py"] += [[(0, attention)], [(0, Origin(ROPE, 8)), (5, attention), (8, loop)]]
            return package

        monkeypatch.setattr("generator.commands.packages.weave_package", weave)
        workshop.build("llama_cpu")
        found = lines_of(workshop, measure(workshop, ROTATE, "data"))
        assert found[ATTENTION] == ([7], [8]), "its statement was not run"

    def test_copy_with_equal_text(self, built):
        shutil.copytree(built.generated, built.root / "copy")
        for name in ("gen.lock", "gen.map"):
            (built.root / "copy/llama_cpu" / name).unlink()
        assert lines_of(built, measure(built, ROTATE, "data", built.root / "copy"))[ROPE] == ([7, 8], [])


class TestReports:
    def test_text_and_pages(self, built):
        result = built.run("coverage", measure(built, ROTATE, "data"), "--html", "pages")
        rows = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines() if "fragments/" in line}
        assert rows[ROPE] == ["2", "0", "100.00%"] and rows[ATTENTION] == ["2", "1", "50.00%", "8"]
        assert rows["fragments/train/loop.py"][3] == "4-6"
        assert "44.44%" in result.stdout.splitlines()[-1]
        assert "fragments/kernels/gpu.py is in no package of the data" in result.stderr
        (page,) = (built.root / "pages").glob("*attention_py.html")
        assert "return query @ key" in page.read_text()

    def test_fail_under(self, built):
        name = measure(built, ROTATE, "data")
        built.run("coverage", name, "--fail-under", "44")
        assert "44.44 % is less than 45 %" in built.run("coverage", name, "--fail-under", "45", code=1).stderr
        assert "nan is not a number" in built.run("coverage", name, "--fail-under", "nan", code=2).stderr

    @pytest.mark.parametrize(
        ("changed", "reason"),
        [
            ("work/generated/llama_cpu/model.py", "as they are gone, or not as they were woven: "),
            (f"builtin/{ROPE}", "as they were woven from fragments that have changed since: "),
        ],
    )
    def test_changed_since(self, built, changed, reason):
        name = measure(built, ROTATE, "data")
        with (built.root.parent / changed).open("a") as file:
            file.write("mine = 1\n")
        result = built.run("coverage", name, "--json")
        assert f"{reason}{built.generated}/llama_cpu/model.py" in result.stderr
        assert ROPE not in json.loads(result.stdout)["files"]

    def test_package_that_is_gone(self, built):
        shutil.copytree(built.generated, built.root / "copy")
        name = measure(built, ROTATE, "data", built.root / "copy")
        shutil.rmtree(built.root / "copy")
        assert "the data are of no woven file" in built.run("coverage", name, code=2).stderr


class TestMistakes:
    @pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b"SQLite format 3\0 no"])
    def test_data(self, built, data):
        (built.root / "data").write_bytes(data)
        assert "data: is not data of coverage.py" in built.run("coverage", "data", code=2).stderr

    def test_files(self, built):
        assert "No such file" in built.run("coverage", "nothing", code=2).stderr
        built.run("coverage", code=2)

    def test_coverage_is_not_installed(self, built, monkeypatch):
        monkeypatch.setitem(sys.modules, "coverage", None)
        monkeypatch.delitem(sys.modules, "generator.running.coverage", raising=False)
        (built.root / "data").write_text("{}")
        assert "coverage.py is not installed" in built.run("coverage", "data", code=2).stderr
