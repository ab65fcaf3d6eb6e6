"""Every module of the generator can be imported by itself, and no two need each other, not even inside a function."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
FILES = {
    ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((REPOSITORY / "generator").rglob("*.py"))
    if "_library" not in path.parts
}


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


def reachable(name: str) -> set[str]:
    seen: set[str] = set()
    ahead = [name]
    while ahead:
        for module in imported(ahead.pop()) - seen:
            seen.add(module)
            ahead.append(module)
    return seen


def test_no_circles():
    assert len(FILES) > 50
    circles = {name: sorted(other for other in reachable(name) if name in reachable(other)) for name in FILES}
    assert {name: circle for name, circle in circles.items() if circle} == {}


@pytest.mark.parametrize("name", [name for name in FILES if name != "generator.__main__"])
def test_alone(name):
    code = f"import sys, {name}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
