"""Each program is compiled once."""

import compiling  # noqa: F401
import jax
import pytest

from robustness.programs import data_file  # noqa: F401


@pytest.fixture(autouse=True, scope="session")
def compiled_once(tmp_path_factory):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("compiled")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    yield
    jax.config.update("jax_compilation_cache_dir", None)
