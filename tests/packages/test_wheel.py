"""gen away from its repository: the wheel carries fragments, templates and targets."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_an_installed_wheel_builds_the_committed_package_in_an_empty_folder(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)],
        check=True,
    )
    (wheel,) = tmp_path.glob("loomax-*.whl")
    site, empty = tmp_path / "site", tmp_path / "empty"
    zipfile.ZipFile(wheel).extractall(site)
    empty.mkdir()
    command = [sys.executable, "-P", "-m", "generator", "build", "llama2", "--target=tpu"]
    subprocess.run(command, cwd=empty, env=os.environ | {"PYTHONPATH": str(site)}, check=True, capture_output=True)
    built, committed = empty / "generated/llama2_tpu", ROOT / "generated/llama2_tpu"
    names = sorted(p.relative_to(built).as_posix() for p in built.rglob("*") if p.is_file() and p.name[0] != ".")
    assert "model.py" in names
    for name in names:
        assert (built / name).read_bytes() == (committed / name).read_bytes(), name
