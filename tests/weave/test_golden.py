"""Packages woven from the folders under tests/golden, compared byte for byte, and where each line of them came from.

A case is a folder: `input` holds fragments/, templates/ and targets/; `expected` holds the package of each architecture
for each target. Where a change is meant, `pytest tests/weave/test_golden.py --update-golden` writes them anew: read
what git shows as changed.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from miniature import tidy

from generator.package.package import Package
from generator.recipe.library import Library
from generator.weaver import weave

GOLDEN = Path(__file__).parent.parent / "golden"
LIBRARIES = {case.name: Library.read([case / "input"]) for case in sorted(GOLDEN.iterdir()) if case.is_dir()}
PACKAGES = [
    (case, architecture, target)
    for case, library in LIBRARIES.items()
    for architecture in library.architectures()
    for target in library.targets()
]
every_package = pytest.mark.parametrize(("case", "architecture", "target"), PACKAGES)


def expected(case: str, name: str) -> dict[str, str]:
    folder = GOLDEN / case / "expected" / name
    return {
        path.relative_to(folder).as_posix(): path.read_bytes().decode()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


class TestBytes:
    """What is woven is what is expected, and it is Python that runs."""

    @every_package
    def test_package(self, case, architecture, target, request):
        made = weave(architecture, target, LIBRARIES[case])
        if request.config.getoption("--update-golden"):
            folder = GOLDEN / case / "expected" / made.name
            shutil.rmtree(folder, ignore_errors=True)
            for path, text in made.files.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(text.encode())
        assert made.files == expected(case, made.name)

    def test_nothing_else_is_expected(self):
        folders = {(path.parent.parent.name, path.name) for path in GOLDEN.glob("*/expected/*")}
        assert folders == {(case, f"{architecture}_{target}") for case, architecture, target in PACKAGES}

    @pytest.mark.parametrize(
        ("name", "printed"),
        [
            # x is [2, 4], then [3.625, 5.625], then [6.0625, 8.0625]: each layer adds the mean of x / 2 + [0, 0.25]
            ("toy_cpu", 5.0625**2 + 6.0625**2),
            # positions reversed, each token a document: each layer adds x / 2 + [0.25, 0]; then the penalty, 0.01 * 4
            ("toy_gpu", 4.125**2 + 7**2 + 0.04),
        ],
    )
    def test_it_runs(self, name, printed):
        folder = GOLDEN / "operators" / "expected"
        command = [sys.executable, "-B", "-m", f"{name}.train"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        assert float(done.stdout) == pytest.approx(printed, rel=1e-12)


class TestInputs:
    """A package knows the sources that it was woven from, and no others."""

    def test_inputs(self):
        made = weave("toy", "cpu", LIBRARIES["operators"])
        assert list(made.inputs) == sorted(made.inputs)
        assert "fragments/kernels/attend_mean.py" in made.inputs
        assert "fragments/kernels/attend_masked.py" not in made.inputs
        assert "targets/cpu/target.toml" in made.inputs and "targets/gpu/target.toml" not in made.inputs


PROGRAM = """
import json, sys
from pathlib import Path
from generator.recipe.library import Library
from generator.weaver import weave
golden, packages = Path(sys.argv[1]), json.loads(sys.argv[2])
made = [weave(a, t, Library.read([golden / case / "input"])) for case, a, t in packages]
print(json.dumps([[p.files, p.origins, p.inputs] for p in made]))
"""


class TestDeterminism:
    """The same bytes whatever the hash seed, the folder, the locale and the time zone, and the order of the files."""

    def test_environment(self, tmp_path):
        root = str(GOLDEN.parent.parent)
        command = [sys.executable, "-c", PROGRAM, str(GOLDEN), json.dumps(PACKAGES)]
        started = []
        for seed, locale, zone, folder in [
            ("0", "C", "UTC", root),
            ("4242", "tr_TR.UTF-8", "Asia/Tokyo", str(tmp_path)),
        ]:
            environment = os.environ | {"PYTHONHASHSEED": seed, "LC_ALL": locale, "TZ": zone, "PYTHONPATH": root}
            started.append(subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE))
        first, second = [process.communicate()[0] for process in started]
        assert first and first == second

    @every_package
    def test_order_of_files(self, case, architecture, target):
        library = LIBRARIES[case]
        backwards = Library(dict(reversed(library.files.items())))
        assert weave(architecture, target, backwards) == weave(architecture, target, library)


def lines_of(made: Package) -> list[tuple[str, int, str, list]]:
    """Path, line number, text and segments of each line that is not blank."""
    return [
        (path, number, line, made.origins[path][number])
        for path, text in made.files.items()
        if path.endswith(".py")
        for number, line in enumerate(text.split("\n"))
        if line.strip()
    ]


class TestOrigins:
    """Every line came from somewhere, and what was copied stands there."""

    @every_package
    def test_each_line_has_one(self, case, architecture, target):
        made, library = weave(architecture, target, LIBRARIES[case]), LIBRARIES[case]
        for path, number, line, segments in lines_of(made):
            assert segments, f"{path}:{number + 1}: {line}"
            for _, origin in segments:
                assert 1 <= origin.line <= library.files[origin.path].count("\n") + 1

    @every_package
    def test_a_copied_line_equals_its_source(self, case, architecture, target):
        made, library = weave(architecture, target, LIBRARIES[case]), LIBRARIES[case]
        copied = 0
        for _, _, line, segments in lines_of(made):
            sources = {library.files[o.path].split("\n")[o.line - 1] for _, o in segments if o.path.endswith(".py")}
            copied += squeezed(line) in {squeezed(source) for source in sources}
        total = sum(1 for path, _, _, _ in lines_of(made) if path in ("model.py", "train.py"))
        assert copied >= 0.7 * (total - 4)  # all but headers, imports and threaded lines

    def test_threaded_and_spliced_words(self):
        """The parts of one line have each their own origin."""
        made = weave("toy", "gpu", LIBRARIES["operators"])
        lines = made.files["model.py"].split("\n")
        number = next(n for n, line in enumerate(lines) if line.lstrip().startswith("h = attend(h"))
        assert lines[number].strip() == "h = attend(h, segment_ids)  # [T]"
        segments = [
            (lines[number][column:].strip(), origin.path) for column, origin in made.origins["model.py"][number]
        ]
        assert [(text.split(",")[0].split(")")[0], path.split("/")[-1]) for text, path in segments] == [
            ("h = attend(h", "block.py"), ("", "loss.py"), ("", "block.py"),
        ]  # fmt: skip
        taken = next(n for n, line in enumerate(lines) if "self, x: list[float], positions" in line)
        paths = [origin.path.split("/")[-1] for _, origin in made.origins["model.py"][taken]]
        assert paths == ["block.py", "positions.py", "loss.py", "block.py"]  # each parameter is of what asks for it


def squeezed(line: str) -> str:
    """A line without what formatting may change."""
    return "".join(line.split()).replace("'", '"')


def test_expected_packages_are_formatted():
    """They read as if written by hand: ruff has nothing to change."""
    for path in sorted(GOLDEN.glob("*/expected/*/*.py")):
        assert path.read_text() == tidy(path.read_text()), path
        ast.parse(path.read_text())
