"""Settings for all tests, which run on CPUs."""

import gc
import os
import sys

import jax
import pytest


def pytest_configure() -> None:
    jax.config.update("jax_platforms", "cpu")
    # small programs run for milliseconds: without LLVM's optimisations, and with the simpler of two code
    # generators in older versions, they compile eight times faster
    fast = " --xla_backend_optimization_level=0"
    if jax.__version_info__[:2] <= (0, 10):
        fast += " --xla_cpu_use_fusion_emitters=false"
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + fast


@pytest.fixture
def unraisable_hook(monkeypatch):
    """Limits to one test the hook for what Orbax drops, which Checkpoints sets in place of Python's."""
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    yield
    gc.collect()
