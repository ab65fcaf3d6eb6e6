"""Decode steps on CPUs without YNNPACK: with a row for each sequence, XLA's other products are faster.

Prefill, with many rows, keeps it: benchmarks/decode_products.py compares.
"""

import functools

import jax

from generator.language import proceed, requires, splice
from generator.language.roles import Decoder, LayerState, Slots, StepInput, StepOutput, run

requires("engine/steps", "engine/device")


@functools.partial(
    jax.jit,
    static_argnames=("length", "score_all"),
    donate_argnames="slots",
    compiler_options={"xla_cpu_experimental_ynn_fusion_type": ""},
)
def run_decode(
    model: Decoder, state: LayerState, slots: Slots, step: StepInput, length: int, score_all: bool
) -> tuple[StepOutput, object, Slots]:
    """Does what `run` does, of one token of each sequence, without products of YNNPACK: many rows alone gain by it."""
    return run(model, state, slots, step, length, score_all)


@splice("Device.step")
def _(self, step, length, score_all, output, new):
    if length == 1:
        output, new, self.slots = run_decode(self.model, self.state, self.slots, step, length, score_all)
    else:
        proceed()
