"""A folder of compiled programs, so that a second start compiles nothing."""

import jax

from generator.language import splice
from generator.language.roles import absolute


class TrainConfig:
    compile_cache: str = ""  # folder of JAX's compilation cache; "": JAX_COMPILATION_CACHE_DIR, if set


@splice("train.settings")
def _(config):
    if config.compile_cache:
        absolute(config.compile_cache).mkdir(parents=True, exist_ok=True)
        jax.config.update("jax_compilation_cache_dir", str(absolute(config.compile_cache)))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # small programs too
