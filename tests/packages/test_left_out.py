"""What belongs to a fragment goes with it: without one, tests and README speak of nothing that is gone."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

import pytest

from generator.commands.points import list_points
from generator.disk.project import builtin_root
from generator.language.fragment import Fragment
from generator.recipe.library import Library
from generator.recipe.recipe import select
from generator.weaver import weave

ARCHITECTURE = "templates/architectures/without.toml"
# of templates/package.toml, those that nothing else asks for; the others are refused while weaving
TOGETHER = (
    "formats/columns",
    "data/packing",
    "data/mixture",
    "data/prepared",
    "train/z_loss",
    "train/progress_bar",
    "train/tensorboard",
    "train/loss_curve",
    "report/curves",
    "report/report",
    "train/compile_cache",
    "train/goodput",
    "train/preemption",
    "train/profile",
    "train/check_step",
    "data/prepare",
    "ray_tasks/ray_tasks",
    "cluster/lock",
    "cluster/watchdog",
    "cluster/damage",
    "checkpoint/convert",
    "weights/int8_kernels",
    "pages/int8",
    "engine/draft_ngram",
    "choices/tool_calls",
    "evaluate/evaluate",
    "generate/generate",
    "serve/serve",
    "serve_processes/serve_processes",
)
ALONE = (*((name, "cpu") for name in (*TOGETHER, "train/command")), ("pages_kernel/attend_token", "tpu"))
# a module that is run, imported or reached by its name: in Python of the package's tests, and in shell of its README
MODULES = (
    r"PACKAGE\.name\}\.(?!tests|launch\.)(\w+)",
    r"import_module\(f?\"\.\.(\w+)\"",
    r"^from \.\.(\w+) import",
    r"-m without_[ct]pu\.(\w+)",
)


@cache
def library() -> Library:
    return Library.read((builtin_root(),))


def without(*names: str) -> Library:
    """The library with llama2 without some fragments as another architecture."""
    listed = ", ".join(f'"{name}"' for name in names)
    return library().with_texts({ARCHITECTURE: f'base = "llama2"\ntitle = "Without"\nwithout = [{listed}]\n'})


def gone(files: dict[str, str], names: tuple[str, ...]) -> Iterator[str]:
    """The lines of tests and README that speak of what is not there."""
    stay = {fragment.name for fragment in select("without", "cpu", without(*names)).fragments}
    left = [fragment for fragment in select("llama2", "cpu", library()).fragments if fragment.name not in stay]
    words = re.compile("|".join(word for fragment in left for word in _words(fragment)) or "(?!)")
    for path, text in files.items():
        if path != "README.md" and not re.fullmatch(r"tests/\w+\.py", path):
            continue
        for number, line in enumerate(text.split("\n"), 1):
            modules = [name for pattern in MODULES for name in re.findall(pattern, line)]
            missing = [name for name in modules if not _is_there(f"{name}.py", line, files)]
            if missing or words.search(line):
                yield f"{path}:{number}: {line.strip()}"


def _words(fragment: Fragment) -> Iterator[str]:
    """What names its fields of the config, and its settings of an engine, a server or a program."""
    for name in (member.name for member in fragment.fields if member.is_field):
        yield rf"\b{name}\b|--{name.replace('_', '-')}\b"
    for body in (splice.body.text for splice in fragment.splices if splice.point.endswith("Settings.fields")):
        for name in re.findall(r"^\s*(\w+):", body, re.MULTILINE):
            yield rf"\b{name}=|\"{name}\"|--{name.replace('_', '-')}\b"


def _is_there(file: str, line: str, files: dict[str, str]) -> bool:
    """Whether a module is in the package and, where it is run, is a command."""
    return file in files and ("-m" not in line or "\nif __name__ == " in files[file])


def test_nothing_speaks_of_what_is_left_out():
    """All at once, which takes one weaving; each by itself below."""
    files = weave("without", "cpu", without(*TOGETHER)).files
    assert list(gone(files, TOGETHER)) == []
    assert not {f"tests/test_{name}.py" for name in ("serve", "z_loss", "compile_cache", "evaluate")} & files.keys()
    committed = builtin_root() / "generated" / "llama2_cpu"
    whole = {path.relative_to(committed).as_posix(): path.read_text() for path in committed.rglob("*.[pm][yd]")}
    assert len(list(gone(whole, TOGETHER))) > 3, "it would be seen"


def test_no_fragment_needs_a_test():
    """What splices into a test says `optional`: packages are woven without tests, too."""
    points = {point["name"] for point in list_points(library(), None) if point["fragment"].startswith("tests/")}
    fragments = [library().fragment(name) for name in library().fragments() if not name.startswith("tests/")]
    splices = [splice for fragment in fragments for splice in fragment.splices if splice.point in points]
    assert [str(splice.origin) for splice in splices if not splice.optional] == []
    assert splices, "there are some"


def test_a_program_that_is_run_by_its_path_is_asked_for():
    """No name of render.py is used elsewhere: without it, what runs it is not selected either."""
    chosen = [fragment.name for fragment in select("without", "cpu", without("render/render")).fragments]
    assert "chat_template/chat_template" not in chosen


@pytest.mark.slow
@pytest.mark.parametrize(("name", "target"), ALONE)
def test_each_by_itself(name, target, tmp_path):
    """Its tests can be imported, too."""
    files, package = weave("without", target, without(name)).files, f"without_{target}"
    assert list(gone(files, (name,))) == []
    for path, text in files.items():
        (tmp_path / package / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / package / path).write_text(text)
        assert not path.endswith(".py") or ast.parse(text)
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir=.", "-q", "--collect-only", package]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
