"""Peak FLOP/s from the data sheet."""

import math

import jax

from generator.language import splice
from generator.language.roles import CHIPS


def peak_flops() -> tuple[float, str]:
    """Returns the dense bf16 FLOP/s of all devices, and its label; nan for an unknown kind."""
    kind = jax.devices()[0].device_kind
    count = jax.device_count()
    peak = count * next((chip.peak for chip in CHIPS.values() if kind in chip.kinds), math.nan)
    if math.isnan(peak):
        return peak, f"an unknown peak, as CHIPS in config.py has no {kind!r}"
    return peak, f"{peak / 1e12:,.0f} TFLOP/s, the bf16 peak of {count} {kind}"


@splice("Monitor.speed")
def _(text, speed, full, causal):
    text += f" {speed:,.0f} tokens/s" + (f" MFU {full:.1%} full {causal:.1%} causal" if math.isfinite(full) else "")
