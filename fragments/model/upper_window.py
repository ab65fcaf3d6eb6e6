"""A sliding window in the upper layers only.

Source: Yang et al. 2024, arXiv 2407.10671, section 2.2.1 (its models were released with the window off).
"""

from generator.marks import requires, splice

requires("sliding_window")


class Config:
    full_layers: int  # lower layers, which see everything; the others see through the window


@splice("hf.sizes")
def _():
    yield "max_window_layers", "full_layers"


@splice("hf.complete")
def _(hf):
    hf.setdefault("use_sliding_window", False)


@splice("hf.structure")
def _():
    yield "use_sliding_window", True, "model/no_window"
