"""Experts beside a feed-forward for every token: each of both has norms of its own, before and after.

Source: Google DeepMind 2026, Gemma 4 (its released code).
"""

from generator.language import requires, splice
from generator.language.roles import Norm, apply_experts

requires("shared_feed_forward", "post_norms")


@splice("Block.mlp_norm")
def _():
    pass


@splice("Block.normed_mlp")
def _(self, x, h):
    h = self.mlp(x)


@splice("MixtureOfExperts.parameters")
def _(self, config, D):
    self.norm = Norm(D, config.norm_epsilon)
    self.post_norm = Norm(D, config.norm_epsilon)
    self.shared_norm = Norm(D, config.norm_epsilon)
    self.shared_post_norm = Norm(D, config.norm_epsilon)


@splice("MixtureOfExperts.applied")
def _(self, x, y, weights, chosen):
    y = self.post_norm(apply_experts(self.experts, self.norm(x), weights, chosen))


@splice("MixtureOfExperts.shared")
def _(self, x, y):
    y = y + self.shared_post_norm(self.shared(self.shared_norm(x)))


@splice("hf.layer_tensors")
def _():
    yield "mlp.norm.scale", "model.layers.{}.pre_feedforward_layernorm_2.weight", "d -> d"
    yield "mlp.post_norm.scale", "model.layers.{}.post_feedforward_layernorm_2.weight", "d -> d"
    yield "mlp.shared_norm.scale", "model.layers.{}.pre_feedforward_layernorm.weight", "d -> d"
    yield "mlp.shared_post_norm.scale", "model.layers.{}.post_feedforward_layernorm_1.weight", "d -> d"


@splice("hf.structure")
def _():
    yield "enable_moe_block", True, "a feed-forward without experts"
