"""Settings for all tests: they run on the host's processor."""

import os

import jax


def pytest_configure() -> None:
    jax.config.update("jax_platforms", "cpu")
    # small programs that run for milliseconds: compiled eight times faster by the simpler of two code generators
    fast = " --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + fast
