"""Decode steps on CPUs without YNNPACK: with a row for each sequence, XLA's other products are faster.

Prefill, with many rows, keeps it: benchmarks/decode_products.py compares.
"""

import jax

from generator.language import proceed, requires, splice
from generator.language.roles import run

requires("engine/steps", "engine/device")

run_decode = jax.jit(
    run.__wrapped__,
    static_argnames=("length", "score_all"),
    donate_argnames="slots",
    compiler_options={"xla_cpu_experimental_ynn_fusion_type": ""},
)


@splice("Device.step")
def _(self, step, length, score_all, output, new):
    if length == 1:
        output, new, self.slots = run_decode(self.model, self.state, self.slots, step, length, score_all)
    else:
        proceed()
