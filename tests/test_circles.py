"""The layers of the generator: no module needs one that needs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
MODULES = sorted(
    ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
    for path in (REPOSITORY / "generator").rglob("*.py")
    if path.name not in ("__init__.py", "__main__.py")
)


def test_every_module_can_be_imported_first():
    """Alone, with none of the others there."""
    script = f"""
import importlib, sys
for module in {MODULES}:
    for name in [name for name in sys.modules if name.partition(".")[0] == "generator"]:
        del sys.modules[name]
    importlib.import_module(module)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-600:]
