"""Every module of the generator can be imported by itself, and no two need each other, not even inside a function."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

from generator.disk.lock import WEAVING

REPOSITORY = Path(__file__).resolve().parents[1]
FILES = {
    ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((REPOSITORY / "generator").rglob("*.py"))
    if "_library" not in path.parts
}
ALONE = """
import importlib, sys, traceback
for name in sys.argv[1:]:
    for loaded in [loaded for loaded in sys.modules if loaded.partition(".")[0] == "generator"]:
        del sys.modules[loaded]
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(f"{name}: {error}")
"""


@lru_cache
def imported(name: str) -> set[str]:
    """The modules that one imports anywhere in its text, with the packages that are imported on the way."""
    found = set()
    for node in ast.walk(ast.parse(FILES[name].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    found |= {module.rpartition(".")[0] for module in found}
    return {module for module in found & FILES.keys() if not f"{name}.".startswith(f"{module}.")}


@lru_cache
def reachable(name: str) -> set[str]:
    seen: set[str] = set()
    ahead = [name]
    while ahead:
        new = imported(ahead.pop()) - seen
        seen |= new
        ahead += new
    return seen


def test_no_circles():
    assert len(FILES) > 50
    circles = {name: {other for other in reachable(name) if name in reachable(other)} for name in FILES}
    assert {name: circle for name, circle in circles.items() if circle} == {}


def test_lock_knows_what_weaving_imports():
    """A lock hashes these folders and modules whole."""
    modules = {"generator.weaver"} | reachable("generator.weaver")
    paths = [FILES[name].relative_to(REPOSITORY / "generator") for name in modules]
    assert {path.parts[0] for path in paths} | {"__init__.py"} == {*WEAVING}


def test_every_module_alone():
    done = subprocess.run([sys.executable, "-c", ALONE, *FILES], cwd=REPOSITORY, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_no_circles_of_folders():
    """A folder is a layer: what stands below it knows nothing of it."""
    folders: dict[str, set[str]] = {}
    for name in FILES:
        folder = name.split(".")[1] if name.count(".") > 1 else name
        folders.setdefault(folder, set()).update(
            other.split(".")[1] for other in imported(name) if other.count(".") > 1 and other.split(".")[1] != folder
        )
    order = graphlib.TopologicalSorter(folders)
    assert list(order.static_order())  # raises CycleError
