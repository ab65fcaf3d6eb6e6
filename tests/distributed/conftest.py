"""Each program of jobs is compiled once."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def cache(tmp_path_factory) -> Path:
    """The folder of compiled programs, which pytest's workers share."""
    folder = tmp_path_factory.getbasetemp()
    return (folder.parent if folder.name.startswith("popen-") else folder) / "compiled"
