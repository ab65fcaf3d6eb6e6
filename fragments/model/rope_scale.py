"""Scale of the rotary embedding: scores grow with its square, as the softmax over more keys is flatter.

Source: Peng et al. 2023, arXiv 2309.00071, section 3.4.
"""

from generator.language import provide, requires, splice

requires("rope")


@provide("Attention.__call__")
def rope_scale(self) -> float:
    return self.rope_scale


@splice("rotate.scale")
def _(sin, cos, rope_scale):
    sin, cos = rope_scale * sin, rope_scale * cos
