"""YaRN with a scale on whole scores, not only on the rotated part.

Source: DeepSeek-AI 2024, arXiv 2405.04434, section 3.1.4 (its released code).
"""

import math

from generator.language import proceed, requires, splice
from generator.language.roles import NonNegativeFloat

requires("yarn")


class ModelConfig:
    rope_mscale: NonNegativeFloat = 1.0  # scores are scaled by (0.1 rope_mscale log(rope_factor) + 1)**2


@splice("Attention.parameters")
def _(self, config):
    self.score_scale = (0.1 * config.rope_mscale * math.log(config.rope_factor) + 1) ** 2


@splice("Attention.heads", after="rope")
def _(self, q):
    q = q * self.score_scale


@splice("hf.sizes")
def _():
    yield "rope_scaling.mscale_all_dim", "rope_mscale"


@splice("hf.yarn_scale")
def _(hf):
    for scale in "rope_scaling.mscale", "rope_scaling.mscale_all_dim":
        hf[scale] = hf.get(scale) or 0.0
    if hf["rope_scaling.mscale"]:
        hf.setdefault("rope_scaling.attention_factor", 1.0)  # the ratio of two equal scales
    else:
        proceed()


@splice("hf.yarn_mscale")
def _(config):
    yield "rope_scaling.mscale", config.rope_mscale, "a rope whose mscale is not its mscale_all_dim"
