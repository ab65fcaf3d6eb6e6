"""Every package of generated/packages.toml with all its parts, in build/whole: there is more to test than is committed.

A process that builds them while another one does waits, and then finds them built. `python tests/whole.py` builds them.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from generator.disk.project import Project  # noqa: E402

WHOLE = ROOT / "build" / "whole"
NAMES = [combination.name for combination in Project.find(ROOT).packages()]


@cache
def whole_packages() -> Path:
    """The folder of the packages, woven from the fragments as they are now."""
    WHOLE.mkdir(parents=True, exist_ok=True)
    with (WHOLE / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (WHOLE / "gen.toml").write_text('generated = "."\n')
        listed = [
            combination._replace(parts=tuple(dict.fromkeys(("all", *combination.parts)))).entry
            for combination in Project.find(ROOT).packages()
        ]
        (WHOLE / "packages.toml").write_text("".join(listed))
        command = [sys.executable, "-m", "generator", "build", "--all", "--force"]
        subprocess.run(command, cwd=WHOLE, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True, capture_output=True)
    return WHOLE


if __name__ == "__main__":
    whole_packages()
