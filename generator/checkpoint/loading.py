"""Imports a woven package from its folder, for `gen parity` and the tests."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

MODULES = (
    *("config", "errors", "data", "parallel", "model", "step", "monitor", "trainer", "huggingface"),
    *("settings", "pages", "device", "sampling", "engine", "generate"),
)


def load_package(folder: Path, modules: Iterable[str] = MODULES) -> SimpleNamespace:
    """Imports the modules that a package has from its folder, in place of another package of its name."""
    for name in [name for name in sys.modules if name.partition(".")[0] == folder.name]:
        del sys.modules[name]
    sys.path.insert(0, str(folder.parent))
    try:
        present = [name for name in modules if (folder / f"{name}.py").exists()]
        return SimpleNamespace(**{name: importlib.import_module(f"{folder.name}.{name}") for name in present})
    finally:
        sys.path.remove(str(folder.parent))
