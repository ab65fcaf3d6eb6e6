"""How Loomax is installed: pinned versions for each Python, and no command that takes it from a package index."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
CONSTRAINTS = sorted((ROOT / "constraints").glob("python*.txt"))


def pins(path: Path) -> dict[str, str]:
    """Name -> version; any other line but a comment is an error."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    found = dict(line.split("==") for line in lines)
    assert len(found) == len(lines)
    return {canonicalize_name(name): version for name, version in found.items()}


@pytest.mark.parametrize("path", CONSTRAINTS, ids=lambda path: path.stem)
def test_each_requirement_is_pinned_within_its_bounds(path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    found, pinned = {}, pins(path)
    for requirement in map(Requirement, [*project["dependencies"], *extras]):
        name = canonicalize_name(requirement.name)
        if name != "loomax":
            found[name] = pinned.get(name) and requirement.specifier.contains(pinned[name])
    assert [name for name, fits in found.items() if not fits] == []


def test_both_pythons_pin_the_same_names():
    assert [path.stem for path in CONSTRAINTS] == ["python3.11", "python3.12"]
    assert pins(CONSTRAINTS[0]).keys() == pins(CONSTRAINTS[1]).keys()


def test_nothing_says_to_install_loomax_by_its_name():
    """Nobody here publishes a package of that name: who registers it would be installed."""
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    by_name = re.compile(r"(?:pip|pipx|uv)\b[^\n]*\binstall\b[^\n]*[\s'\"]loomax\b(?!/)")
    checked = [
        path for path in files if path and not path.startswith("generated/") and path != "tests/test_constraints.py"
    ]
    texts = {path: (ROOT / path).read_text(errors="replace") for path in checked if (ROOT / path).is_file()}
    assert len(texts) > 500
    assert {path: found for path, text in texts.items() if (found := by_name.findall(text))} == {}


def closure(lines: list[str]) -> set[str]:
    """The names of requirements and of all that they bring."""
    found, queue = set(), [Requirement(line) for line in lines]
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        if name not in found and (not requirement.marker or requirement.marker.evaluate({"extra": ""})):
            found.add(name)
            queue += map(Requirement, importlib.metadata.requires(name) or ())
    return found


@pytest.mark.parametrize(
    "path", sorted((ROOT / "generated").glob("*/pyproject.toml")), ids=lambda path: path.parent.name
)
def test_the_extra_for_packages_brings_what_they_need(path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    brought = closure([*project["dependencies"], *project["optional-dependencies"]["packages"]])
    wanted = tomllib.loads(path.read_text())["project"]["dependencies"]
    assert {canonicalize_name(Requirement(line).name) for line in wanted} - {"libtpu", *brought} == set()
