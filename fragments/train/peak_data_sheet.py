"""Peak FLOP/s from the data sheet."""

import math

import jax

from generator.language import setting, splice

PEAK_FLOPS = setting("peak_flops")  # kind of device -> dense bf16 FLOP/s


def peak_flops() -> tuple[float, str]:
    """Returns the dense bf16 FLOP/s of all devices, and its label; nan for an unknown kind."""
    kind, count = jax.devices()[0].device_kind, jax.device_count()
    if kind not in PEAK_FLOPS:
        return math.nan, f"an unknown peak, as PEAK_FLOPS in monitor.py has no {kind!r}"
    peak = count * PEAK_FLOPS[kind]
    return peak, f"{peak / 1e12:,.0f} TFLOP/s, the bf16 peak of {count} {kind}"


@splice("Monitor.speed")
def _(text, speed, full, causal):
    text += f" {speed:,.0f} tokens/s" + (f" MFU {full:.1%} full {causal:.1%} causal" if math.isfinite(full) else "")
