"""Settings for all tests: they run on the host's processor."""

import os

import jax


def pytest_configure() -> None:
    jax.config.update("jax_platforms", "cpu")
    # small programs that run for milliseconds: compiled three times faster without LLVM's optimisations
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"
