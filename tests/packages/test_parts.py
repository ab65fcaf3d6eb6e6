"""A package without its parts is a trainer, of which nothing is left over."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from selected import mostly_slow

from generator.disk.project import builtin_root
from generator.package.package import Package
from generator.recipe.library import Library
from generator.weaver import weave

LIBRARY = Library.read((builtin_root(),))
LISTED = tomllib.loads((builtin_root() / "generated/packages.toml").read_text())["package"]
PACKAGES = [(entry["architecture"], entry["target"]) for entry in LISTED]
# words of what no trainer has
SERVING = re.compile(r"\b(engine|serve|serving|pages|kv|OpenAI(?! 20\d\d)|prepare|prepared by)\b")


FEW = [("llama2", "cpu"), ("llama2", "tpu"), ("deepseek_v3", "tpu")]


@pytest.mark.parametrize("packages", mostly_slow([FEW, PACKAGES], FEW), ids=["few", "all"])
def test_trainers_speak_of_no_part(packages, tmp_path):
    """And their tests can be imported, by one process, as JAX takes long."""
    for architecture, target in packages:
        check_trainer(weave(architecture, target, LIBRARY, parts=()), tmp_path)
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir=.", "-q", "--collect-only", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


def check_trainer(package: Package, folder: Path) -> None:
    """Checks the words of a package, which is written into a folder."""
    modules = {path: text for path, text in package.files.items() if path.endswith(".py") and "/" not in path}
    assert not {"engine.py", "pages.py", "serve.py", "openai.py", "text.py", "weights.py"} & modules.keys(), (
        package.name
    )
    assert "page.html" not in package.files and "generate.py" in modules, package.name
    said = [
        f"{package.name}/{path}: {word}"
        for path in ("model.py", "generate.py")
        for word in SERVING.findall(modules[path])
    ]
    assert said == []
    readme = package.files["README.md"].partition("## How it was made")
    assert "-m {package}.serve" not in readme[0] and "prepare" not in readme[0] and "--with serve" in readme[2]
    for path, text in package.files.items():
        (folder / package.name / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / package.name / path).write_text(text)


@pytest.mark.parametrize("target", ["gpu", "tpu"])
def test_nothing_is_left_of_parts_that_a_target_has_by_default(target):
    """But for the sentence that offers them; the flags that they would add to are set all the same."""
    plain = weave("llama2", target, LIBRARY, parts=("-compile", "-recipes"))
    files = plain.files | {"README.md": plain.files["README.md"].partition("## How it was made")[0]}
    residue = re.compile(
        r"\b(HARDWARE|RECIPES|Recipe|recipe|usable_gib|topology)\b|--hardware|[.]compile --|compile[.]py"
    )
    found = [f"{path}: {match[0]}" for path, text in files.items() for match in residue.finditer(text)]
    assert [line for line in found if not line.startswith("gen.")] == []
    assert "set_flags(FLAGS)" in plain.files["train.py"] and "--without recipes" in plain.files["README.md"]


@pytest.mark.slow
def test_a_trainer_passes_its_tests(tmp_path):
    package = weave("llama2", "cpu", LIBRARY, parts=())
    for path, text in package.files.items():
        (tmp_path / package.name / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / package.name / path).write_text(text)
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir=.", "-q", "-W", "error", package.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]
