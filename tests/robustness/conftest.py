"""Each program is compiled once."""

import compiling  # noqa: F401
import jax
import pytest

from robustness.programs import data_file  # noqa: F401
from robustness.serving import save_model, served


@pytest.fixture(autouse=True, scope="session")
def compiled_once(tmp_path_factory):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("compiled")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    yield
    jax.config.update("jax_compilation_cache_dir", None)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """What `served` serves, and its log."""
    folder = tmp_path_factory.mktemp("serving") / "hf"
    save_model(folder)
    return folder


@pytest.fixture(scope="session")
def server(model_folder):
    """A server for all tests: its process and its port."""
    with served(model_folder) as found:
        yield found
