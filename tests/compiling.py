"""How tests compile: fast rather than well, as their arrays are tiny."""

import os

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
