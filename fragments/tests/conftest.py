"""Settings for all tests: they run on the host's processor."""

import gc
import os
import sys

import jax
import pytest


def pytest_configure() -> None:
    jax.config.update("jax_platforms", "cpu")
    # small programs that run for milliseconds: compiled without LLVM's optimisations, and where there are two code
    # generators, by the simpler one, eight times faster
    fast = " --xla_backend_optimization_level=0"
    if jax.__version_info__[:2] <= (0, 10):
        fast += " --xla_cpu_use_fusion_emitters=false"
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + fast


@pytest.fixture
def unraisable_hook(monkeypatch):
    """Checkpoints put a hook for what Orbax drops in the place of Python's: here for one test."""
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    yield
    gc.collect()
