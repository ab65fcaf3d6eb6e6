"""A plugin of pytest: processes that tests start do without torch, which tensorboardX would load, for seconds."""

import os
import signal
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # whose own path is read: tests compare with torch
        hidden = str(Path(__file__).parent / "without_torch")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [hidden, os.environ.get("PYTHONPATH")]))


def pytest_sessionfinish() -> None:
    """Lets xdist end its workers at once, where a trainer that ran in one has left a handler of signals."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
