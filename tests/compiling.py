"""How tests compile: fast rather than well, as their arrays are tiny, and each program once."""

import os
from collections.abc import Iterator

import pytest

# neither LLVM's optimisations nor the slower of two code generators, and no parts for threads that other tests need
FAST = " ".join(
    (
        "--xla_backend_optimization_level=0",
        "--xla_cpu_use_fusion_emitters=false",
        "--xla_cpu_parallel_codegen_split_count=1",
    )
)
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FAST}"
os.environ.setdefault("JAX_PLATFORMS", "cpu")


@pytest.fixture(autouse=True, scope="session")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of programs, of this process and those that it starts: of several at a time one could read half a file."""
    import jax  # after XLA_FLAGS

    folder = str(tmp_path_factory.mktemp("compiled"))
    settings = {
        "jax_compilation_cache_dir": folder,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in settings.items():
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)
    yield
    jax.config.update("jax_compilation_cache_dir", None)
