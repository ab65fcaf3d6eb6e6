"""A folder of compiled programs, so that a second start compiles nothing."""

import jax

from generator.language import splice
from generator.language.roles import absolute


class TrainConfig:
    compile_cache: str = ""  # folder of JAX's compilation cache; "": JAX_COMPILATION_CACHE_DIR, if set


def keep_programs(folder: str) -> None:
    """Keeps compiled programs in a folder, for this process and later ones; "": as JAX is configured."""
    if folder:
        absolute(folder).mkdir(parents=True, exist_ok=True)
        jax.config.update("jax_compilation_cache_dir", str(absolute(folder)))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # small programs too


@splice("train.settings")
def _(config):
    keep_programs(config.compile_cache)
