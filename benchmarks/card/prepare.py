"""A folder with all that a machine without network needs: woven packages, the models' numbers, and wheels."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from .measurements import PACKAGES

BENCHMARKS = Path(__file__).resolve().parents[1]
REQUIREMENTS = BENCHMARKS / "gpu-requirements.txt"
# of glibc, oldest last: pip takes none that it is not told of
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (35, 34, 31, 28, 27, 24, 17, 12, 5)]
PLATFORMS += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"]


def requirements() -> list[Requirement]:
    lines = REQUIREMENTS.read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def prepare(folder: Path, python: str | None = None) -> None:
    """Weaves the packages, writes models.json, and, for a Python such as 3.12, downloads wheels for Linux on x86-64."""
    sys.path.insert(0, str(BENCHMARKS.parent))
    from generator.recipe.library import Library
    from generator.weaver import weave

    library = Library.read([BENCHMARKS.parent])
    for name, (architecture, parts) in PACKAGES.items():
        for path, text in weave(architecture, "gpu", library, parts=parts).files.items():
            if not path.startswith(("tests/", "launch/")):
                file = folder / "packages" / name / f"{architecture}_gpu" / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
    paths = [BENCHMARKS, *(folder.resolve() / "packages" / name for name in PACKAGES)]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(map(str, paths))}
    subprocess.run([sys.executable, "-m", "card.describe", folder], env=environment, check=True)
    if python:
        platforms = [f"--platform={platform}" for platform in PLATFORMS]
        command = ["pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", f"--python-version={python}"]
        where = ["--requirement", REQUIREMENTS, "--dest", folder / "wheels"]
        subprocess.run([sys.executable, "-m", *command, *platforms, *where], check=True)


def install(folder: Path, site: Path) -> list[str]:
    """Installs those wheels of the folder that this machine lacks or has too old; returns what is still missing."""

    def lacking() -> list[Requirement]:
        there = {canonicalize_name(it.name): it.version for it in importlib.metadata.distributions()}
        wanted = {canonicalize_name(it.name): it for it in requirements()}
        return [it for name, it in wanted.items() if name not in there or there[name] not in it.specifier]

    names = {canonicalize_name(it.name) for it in lacking()}
    wheels = [path for path in (folder / "wheels").glob("*.whl") if parse_wheel_filename(path.name)[0] in names]
    if wheels:
        command = ["pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--target", site, *wheels]
        subprocess.run([sys.executable, "-m", *command], check=True)
    sys.path.insert(0, str(site))
    importlib.invalidate_caches()
    return [str(requirement) for requirement in lacking()]
