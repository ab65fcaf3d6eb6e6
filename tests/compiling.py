"""How tests compile: fast rather than well, as their arrays are tiny."""

import os

import jax

# no optimisations by LLVM, and no parts for threads that other tests need
FAST = "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
if jax.__version_info__[:2] <= (0, 10):  # the simpler of two code generators; later ones have one
    FAST += " --xla_cpu_use_fusion_emitters=false"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FAST}"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
